// The instructions of the PTX manual: each is there, or docs/limits.md says that it is not.
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>

#include "gtest/gtest.h"
#include "softgpu/interpreter/select.h"

namespace flyt::ptx {
namespace {

// PTX ISA 9.0, "Instruction Set", section by section; of each the word before the first dot.
constexpr const char* kManual =
    "add sub mul mad mul24 mad24 sad div rem abs neg min max popc clz bfind fns brev bfe bfi szext "
    "bmsk dp4a dp2a "
    "addc subc madc "
    "testp copysign fma rcp sqrt rsqrt sin cos lg2 ex2 tanh "
    "set setp selp slct "
    "and or xor not cnot lop3 shf shl shr "
    "mov shfl prmt ld ldu st multimem prefetch prefetchu applypriority discard createpolicy "
    "isspacep cvta cvt mapa getctarank cp tensormap "
    "tex tld4 txq istypep suld sust sured suq "
    "bra brx call ret exit "
    "bar barrier membar fence atom red vote match activemask redux griddepcontrol elect mbarrier "
    "clusterlaunchcontrol "
    "wmma mma ldmatrix stmatrix movmatrix wgmma tcgen05 "
    "stacksave stackrestore alloca "
    "vadd vsub vabsdiff vmin vmax vshl vshr vmad vset "
    "vadd2 vsub2 vavrg2 vabsdiff2 vmin2 vmax2 vset2 vadd4 vsub4 vavrg4 vabsdiff4 vmin4 vmax4 vset4 "
    "brkpt nanosleep pmevent trap setmaxnreg";

std::set<std::string> words(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

// What stands in backticks between "module: the instructions" and the semicolon behind it.
std::set<std::string> listed_as_missing() {
  std::ifstream file(FLYT_TEST_LIMITS);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const std::size_t begin = text.find("module: the instructions");
  if (begin == std::string::npos) return {};
  const std::string list = text.substr(begin, text.find(';', begin) - begin);
  std::set<std::string> names;
  std::size_t at = 0;
  while ((at = list.find('`', at)) != std::string::npos) {
    const std::size_t end = list.find('`', at + 1);
    if (end == std::string::npos) break;
    names.insert(list.substr(at + 1, end - at - 1));
    at = end + 1;
  }
  return names;
}

TEST(Instructions, ThoseOfTheManualAreThereOrAmongTheLimits) {
  std::set<std::string> missing;
  for (const std::string& each : words(kManual)) {
    if (!opcode_known(each)) missing.insert(each);
  }
  EXPECT_EQ(missing, listed_as_missing());
}

}  // namespace
}  // namespace flyt::ptx
