// The gates there are.
#pragma once

#include "kernels/activation.cuh"

namespace fusedops {

using Gates = activation::Among<activation::Relu, activation::GeluTanh, activation::GeluErf,
                                activation::Silu>;

}  // namespace fusedops
