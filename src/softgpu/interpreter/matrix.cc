// mma, wmma, ldmatrix, stmatrix.
#include "softgpu/interpreter/select.h"

namespace flyt::ptx {

bool select_matrix(Selector& s) { return s.refuse_form(); }

}  // namespace flyt::ptx
