// The one exception type of the host side; torch shows it as a RuntimeError.
#pragma once

#include <stdexcept>
#include <string>

namespace fusedops {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// "op: argument: expected E, found F"
[[noreturn]] inline void fail(const char* op, const char* argument, const std::string& expected,
                              const std::string& found) {
  throw Error(std::string(op) + ": " + argument + ": expected " + expected + ", found " + found);
}

}  // namespace fusedops
