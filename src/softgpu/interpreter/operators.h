// Operators on two integers that several families of instructions have.
#pragma once

namespace flyt::ptx {

struct And {
  template <class T>
  static T apply(T a, T b) {
    return a & b;
  }
};
struct Or {
  template <class T>
  static T apply(T a, T b) {
    return a | b;
  }
};
struct Xor {
  template <class T>
  static T apply(T a, T b) {
    return a ^ b;
  }
};

}  // namespace flyt::ptx
