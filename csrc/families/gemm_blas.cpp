// Products by cuBLASLt, past torch: that costs the host less than torch's call, and an activation
// can be in the product.
#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>

#include "families/cublas_lt.h"
#include "families/gemm_products.h"

namespace fusedops {
namespace {

namespace lt = cublas_lt;

// A matrix in the library's words: its columns are contiguous. So these are transposes of ours, and
// y's transpose is the product of the weight's and a's.
struct LtMatrix {
  std::int64_t rows, cols, pitch;
  bool turned;  // the product takes its transpose

  bool operator<(const LtMatrix& other) const { return fields() < other.fields(); }

 private:
  std::tuple<std::int64_t, std::int64_t, std::int64_t, bool> fields() const {
    return {rows, cols, pitch, turned};
  }
};

LtMatrix of_rows(std::int64_t rows, std::int64_t cols, bool by_columns, std::int64_t pitch) {
  return by_columns ? LtMatrix{rows, cols, pitch, true} : LtMatrix{cols, rows, pitch, false};
}

// The most that a pointer is known to be a multiple of, up to 256 bytes.
std::uint32_t alignment_of(const void* data) {
  const auto address = reinterpret_cast<std::uintptr_t>(data) | 256;
  return static_cast<std::uint32_t>(address & -address);
}

// What the library's choice depends on: the GPU, the element type, the epilogue, the weight and a,
// and the alignment of the weight, a, what is added, y and the bias.
using Key = std::tuple<int, DType, std::uint32_t, LtMatrix, LtMatrix, std::array<std::uint32_t, 5>>;

// An object of the library's, and the function that frees it.
using Held = std::unique_ptr<void, lt::Status (*)(lt::Object)>;

template <class Make>
Held held(lt::Status (*free)(lt::Object), const Make& make) {
  lt::Object object = nullptr;
  if (make(&object) != lt::kSuccess) object = nullptr;
  return {object, free};
}

struct Plan {
  lt::Object handle;
  Held descriptor, weight, a, y;
  lt::Heuristic chosen;
};

// The best of the algorithms that the library offers, best first by its own estimate. Measured on
// an H200, with 32 to 256 rows: the tallest tiles take 1.2 to 1.7 times as long as the next
// algorithm, and splitting a sum 1.05 times as long as filling the GPU without.
const lt::Heuristic* best_of(const lt::Functions& library, const lt::Heuristic* offered,
                             int count) {
  const auto value = [&](const lt::Heuristic& of, int key) {
    std::uint32_t found = 0;
    std::size_t bytes = 0;
    library.get(&of.algorithm, key, &found, sizeof found, &bytes);
    return found;
  };
  const lt::Heuristic* best = nullptr;
  for (int i = 0; i < count; ++i) {
    const std::uint32_t tile = value(offered[i], lt::kTile);
    if (tile == lt::k512x64 || tile == lt::k384x64 || tile == lt::k448x64) continue;
    const bool splits = value(offered[i], lt::kSplits) > 1;
    if (!best) {
      best = &offered[i];
      if (!splits) break;
    } else if (!splits && offered[i].waves >= 0.9f && offered[i].waves <= 1) {
      return &offered[i];
    }
  }
  return best || count == 0 ? best : offered;
}

// The plan for products of this kind; null if the library has none.
std::shared_ptr<const Plan> made(const lt::Functions& library, lt::Object handle, const Key& key,
                                 const void* bias) {
  constexpr std::size_t kMost = 32 << 20;  // bytes of scratch memory, as many as torch gives it
  const auto& [gpu, dtype, epilogue, weight, a, alignments] = key;
  const int type = dtype == DType::float16 ? lt::kHalf : lt::kBfloat16;
  const auto layout = [&](const LtMatrix& m) {
    return held(library.free_layout, [&](lt::Object* to) {
      return library.make_layout(to, type, static_cast<std::uint64_t>(m.rows),
                                 static_cast<std::uint64_t>(m.cols), m.pitch);
    });
  };
  const std::int64_t cols = weight.turned ? weight.cols : weight.rows;
  Plan plan{
      handle,
      held(library.free_descriptor,
           [&](lt::Object* to) { return library.make_descriptor(to, lt::kFloatSum, lt::kFloat); }),
      layout(weight),
      layout(a),
      layout({cols, a.turned ? a.rows : a.cols, cols, false}),
      {}};
  const Held preference = held(library.free_preference, library.make_preference);
  if (!plan.descriptor || !plan.weight || !plan.a || !plan.y || !preference) return nullptr;
  bool right = true;
  const auto set = [&](int name, const auto& value) {
    right &= library.set_descriptor(plan.descriptor.get(), name, &value, sizeof value) == 0;
  };
  const auto prefer = [&](int name, const auto& value) {
    right &= library.set_preference(preference.get(), name, &value, sizeof value) == 0;
  };
  set(lt::kTransposeA, weight.turned ? lt::kTransposed : lt::kAsIs);
  set(lt::kTransposeB, a.turned ? lt::kTransposed : lt::kAsIs);
  set(lt::kEpilogue, epilogue);
  if (bias) set(lt::kBiasPointer, bias);
  prefer(lt::kMostWorkspace, kMost);
  prefer(lt::kReductions, lt::kReduceAsFloat);
  for (int i = 0; i < 4; ++i) prefer(lt::kAlignmentA + i, alignments[i]);
  constexpr int kOffered = 8;
  lt::Heuristic offered[kOffered];
  int count = 0;
  right = right && library.choose(handle, plan.descriptor.get(), plan.weight.get(), plan.a.get(),
                                  plan.y.get(), plan.y.get(), preference.get(), kOffered, offered,
                                  &count) == 0;
  const lt::Heuristic* const best = best_of(library, offered, right ? count : 0);
  if (!best) return nullptr;
  plan.chosen = *best;
  return std::make_shared<const Plan>(std::move(plan));
}

// It lives as long as the process, and calls may come while that ends.
struct Plans {
  std::mutex mutex;
  std::map<int, lt::Object> handles;  // by GPU
  std::map<Key, std::shared_ptr<const Plan>> by_key;

  static Plans& all() {
    static Plans& made = *std::make_unique<Plans>().release();
    return made;
  }

  std::shared_ptr<const Plan> find(const lt::Functions& library, const Key& key, const void* bias) {
    constexpr std::size_t kMost = 4096;  // prompts have many lengths
    const std::lock_guard<std::mutex> lock(mutex);
    if (by_key.size() == kMost && by_key.count(key) == 0) by_key.clear();
    const auto [place, is_new] = by_key.try_emplace(key);
    if (is_new) {
      lt::Object& handle = handles[std::get<0>(key)];
      if (handle || library.create(&handle) == 0) place->second = made(library, handle, key, bias);
    }
    return place->second;
  }
};

// The library's f, and the bias; 0 if it has no such f. Its ReLU keeps NaN from release 13 on.
std::uint32_t epilogue_of(const lt::Functions& library, Activation f, bool bias) {
  const std::uint32_t add = bias ? lt::kBias : 0;
  if (f == Activation::identity) return bias ? add : lt::kPlain;
  if (f == Activation::gelu_tanh) return lt::kGelu | add;
  return f == Activation::relu && library.version() >= 130000 ? lt::kRelu | add : 0;
}

}  // namespace

bool try_blas(const Product& call, const Tensor& out, const Rows& a, const Tensor& weight,
              const OptionalTensor& bias, const OptionalTensor& residual) {
  const lt::Functions* const library = lt::functions();
  if (!library || element_size(call.dtype) != 2 || !has_pitch(weight)) return false;
  if (call.rows == 0 || call.inner == 0 || call.width == 0) return false;
  const std::uint32_t epilogue = epilogue_of(*library, call.follow.activation, bias.has_value());
  if (epilogue == 0) return false;
  const OptionalTensor row = contiguous_if(bias);
  const void* const added = data_of(row);
  const std::int64_t* const by = weight.view().strides;
  const bool by_columns = by[1] != 1;
  const void* const more = residual ? residual->data() : out.data();
  const Gpu on = gpu_of(a.tensor);
  const Key key{on.index,
                call.dtype,
                epilogue,
                of_rows(call.inner, call.width, by_columns, by[by_columns ? 1 : 0]),
                of_rows(call.rows, call.inner, a.by_columns, a.pitch),
                {alignment_of(weight.data()), alignment_of(a.tensor.data()), alignment_of(more),
                 alignment_of(out.data()), alignment_of(added)}};
  const std::shared_ptr<const Plan> plan = Plans::all().find(*library, key, added);
  if (!plan) return false;
  const std::size_t bytes = plan->chosen.workspace;
  const OptionalTensor room = scratch(a.tensor, static_cast<std::int64_t>(bytes));
  // Not while memory is allocated: Python's lock may change hands there.
  const std::lock_guard<std::mutex> lock(Plans::all().mutex);
  lt::Object const descriptor = plan->descriptor.get();
  if (added) library->set_descriptor(descriptor, lt::kBiasPointer, &added, sizeof added);
  const float one = 1, old = residual ? 1 : 0;
  const lt::Status status =
      library->multiply(plan->handle, descriptor, &one, weight.data(), plan->weight.get(),
                        a.tensor.data(), plan->a.get(), &old, more, plan->y.get(), out.data(),
                        plan->y.get(), &plan->chosen.algorithm, data_of(room), bytes, on.stream);
  if (status != lt::kSuccess) {
    throw Error(std::string(Call::current().name()) + ": cuBLASLt refused the product, status " +
                std::to_string(status));
  }
  return true;
}

}  // namespace fusedops
