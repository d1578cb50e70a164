// A loop that the compiler runs.
constexpr unsigned sum() {
  unsigned sum = 0;
  for (unsigned i = 0; i < 2000000; ++i) sum = sum * 31 + i;
  return sum;
}
int slow() {
  constexpr unsigned value = sum();
  return value > 1 ? 6 : 0;
}
