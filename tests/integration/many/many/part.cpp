#include <c10/util/Exception.h>
int part() {
  TORCH_CHECK(true, "torch's header, whose path gets into the object");
  return 4;
}
