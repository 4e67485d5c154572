#include <cstring>
#include <limits>

#include "gtest/gtest.h"
#include "softgpu/interpreter/grid.h"
#include "softgpu/ptx/module.h"

namespace flyt::ptx {
namespace {

const std::string kHeader = ".version 8.6\n.target sm_90a\n.address_size 64\n";

// Why the text is refused, by the parser or the translation; empty: it is not.
std::string refusal(const std::string& text, std::string* log = nullptr) {
  JitLog jit;
  auto module = parse(text, &jit);
  std::string error;
  if (!module) {
    error = module.error().message;
  } else if (auto program = translate(*module, &jit); !program) {
    error = program.error().message;
  }
  if (log != nullptr) *log = jit.errors();
  return error;
}

std::string in_kernel(const std::string& body) {
  return kHeader +
         ".visible .entry k(.param .u64 p) {\n.reg .b32 %r<10>; .reg .b64 %d<10>; "
         ".reg .pred %p<4>;\n" +
         body + "\nret;\n}\n";
}

TEST(Parser, ReadsWhatAModuleDeclares) {
  auto parsed = parse(kHeader + R"(
    .visible .const .align 4 .f32 scale[2] = {1.5, 0f40000000};
    .global .align 8 .u64 pointers[3] = {scale, generic(scale)+4, pointers};
    .weak .global .u32 counter;
    .visible .entry k(.param .u32 a, .param .align 8 .b8 s[12], .param .u64 .ptr .global .align 4 p)
      .maxntid 128, 2, 1 .minnctapersm 3 .reqnctapercluster 2
    { ret; }
    .extern .func (.param .b32 r) helper(.param .b64 x);
  )",
                      nullptr);
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  const Module& module = **parsed;
  EXPECT_EQ(module.target(), 90u);
  EXPECT_EQ(module.target_suffix(), "a");
  ASSERT_EQ(module.kernels().size(), 1u);
  const Function& kernel = module.functions()[module.kernels()[0]];
  EXPECT_EQ(kernel.parameter_bytes, 32u);
  EXPECT_EQ(kernel.parameters[1].offset, 8u);
  EXPECT_EQ(kernel.parameters[1].size, 12u);
  EXPECT_EQ(kernel.parameters[2].offset, 24u);
  EXPECT_EQ(kernel.maxntid, (std::array<std::uint32_t, 3>{128, 2, 1}));
  EXPECT_EQ(kernel.minnctapersm, 3u);
  EXPECT_EQ(kernel.reqnctapercluster[0], 2u);
  const Variable& scale = module.variables()[*module.find_variable("scale")];
  float values[2];
  ASSERT_EQ(scale.initial.size(), sizeof(values));
  std::memcpy(values, scale.initial.data(), sizeof(values));
  EXPECT_EQ(values[0], 1.5f);
  EXPECT_EQ(values[1], 2.0f);
  const Variable& pointers = module.variables()[*module.find_variable("pointers")];
  ASSERT_EQ(pointers.relocations.size(), 3u);
  EXPECT_EQ(pointers.relocations[1].addend, 4);
  EXPECT_FALSE(module.functions()[*module.find_function("helper")].defined);
  EXPECT_FALSE(module.find_variable("nothing").has_value());
}

TEST(Parser, NamesTheInstructionAndLineItCannotExecute) {
  std::string log;
  const std::string error =
      refusal(in_kernel("\nmov.u32 %r1, 1;\nsuld.b.1d.b32.trap %r1, %r2;"), &log);
  EXPECT_EQ(error, "PTX line 8: Instruction 'suld.b.1d.b32.trap' is not supported");
  EXPECT_EQ(log, "ptxas error   : line 8: Instruction 'suld.b.1d.b32.trap' is not supported\n");
  EXPECT_NE(refusal(in_kernel("add.f64x2 %d1, %d2, %d3;")).find("'add.f64x2'"), std::string::npos);
  EXPECT_NE(refusal(in_kernel("add.bogus.u32 %r1, %r2, %r3;")).find("modifier"), std::string::npos);
  EXPECT_NE(refusal(in_kernel("tcgen05.fence::before_thread_sync;"))
                .find("'tcgen05.fence::before_thread_sync'"),
            std::string::npos);
}

TEST(Parser, ChecksSizesAndKindsOfOperands) {
  EXPECT_NE(refusal(in_kernel("add.u32 %r1, %d2, 1;")), "");
  EXPECT_NE(refusal(in_kernel("add.u32 5, %r2, 1;")), "");
  EXPECT_NE(refusal(in_kernel("add.u32 %r1, %p1, 1;")), "");
  EXPECT_NE(refusal(in_kernel("add.f32 %r1, %r2, 1;")), "");
  EXPECT_NE(refusal(in_kernel("setp.eq.u32 %r1, %r2, 1;")), "");
  EXPECT_NE(refusal(in_kernel("@%r1 bra out; out:")), "");
  EXPECT_NE(refusal(in_kernel("ld.global.u32 %r1, %d1;")), "");
  EXPECT_NE(refusal(in_kernel("add.u32 %r1, %r2;")), "");
  EXPECT_NE(refusal(in_kernel("mov.v2.u32 {%r1, %r2}, %tid;")), "");
  EXPECT_EQ(refusal(in_kernel("ld.global.s8 %d1, [%d2+-4];")), "");
}

TEST(Parser, RefusesUnknownAndRepeatedNames) {
  EXPECT_NE(refusal(in_kernel("add.u32 %r1, %r2, %nothing;")), "");
  EXPECT_NE(refusal(in_kernel("add.u32 %r1, %r2, %r10;")), "");
  EXPECT_NE(refusal(in_kernel("bra nowhere;")).find("nowhere"), std::string::npos);
  EXPECT_NE(refusal(in_kernel("a: a: ")), "");
  EXPECT_NE(refusal(kHeader + ".entry k() {ret;} .entry k() {ret;}"), "");
  EXPECT_NE(refusal(kHeader + ".global .u32 x; .global .u32 x;"), "");
}

TEST(Parser, KeepsLabelsAndNamesOfBlocksApart) {
  EXPECT_EQ(refusal(in_kernel(R"(
    { .reg .pred %q; .reg .b64 %r1; mov.u64 %r1, 3; wait: @%q bra wait; bra out; }
    { .reg .pred %q; wait: @%q bra wait; }
    mov.u32 %r1, 3; out:
  )")),
            "");
  EXPECT_NE(refusal(in_kernel("{ inside: } bra inside;")), "");
}

TEST(Parser, ReadsRangesOfNamesInEverySpace) {
  EXPECT_EQ(refusal(kHeader + ".global .u32 word<3>;\n" + R"(
    .visible .entry k() {
      .reg .b64 %d<2>; .reg .b32 %r<2>;
      .shared .align 8 .b8 tile<2>[16];
      .local .b32 %here<2>;
      { .param .u64 %d0<2>; st.param.u64 [%d01], %d1; }
      ld.global.u32 %r0, [word2];
      ld.shared.u32 %r1, [tile1+8];
      st.local.u32 [%here1], %r1;
      ret;
    })"),
            "");
  EXPECT_NE(refusal(in_kernel(".param .u64 %P<2>; st.param.u64 [%P2], %d1;")), "");
  EXPECT_NE(refusal(in_kernel("{ .param .u64 %P<2>; } st.param.u64 [%P1], %d1;")), "");
  EXPECT_NE(refusal(in_kernel(".local .b64 %big<100000>[8];")), "");
  EXPECT_NE(refusal(kHeader + ".global .u32 word<2> = 1;"), "");
  EXPECT_NE(refusal(kHeader + ".global .u32 word<2>; .global .u32 word1;"), "");
}

TEST(Parser, ReadsVectorsOfRegisters) {
  const std::string vectors = ".reg .v2 .b32 %v; .reg .v4 .f32 %w<2>; .reg .f32 %f; ";
  EXPECT_EQ(refusal(in_kernel(vectors + R"(
    mov.v2.b32 %v, {%r1, -1};
    mov.b32 %v.y, %r2;
    mov.b64 %d1, %v;
    mov.v4.f32 %w0, %w1;
    mov.f32 %f, %w1.a;
    ld.global.v4.f32 %w1, [%d2+16];
    st.global.v2.b32 [%d2], %v;
  )")),
            "");
  EXPECT_NE(refusal(in_kernel(vectors + "mov.b32 %v.z, %r2;")), "");
  EXPECT_NE(refusal(in_kernel(vectors + "mov.f32 %f, %w2.x;")), "");
  EXPECT_NE(refusal(in_kernel(vectors + "mov.b32 %r1, %v;")), "");
  EXPECT_NE(refusal(in_kernel(vectors + "mov.v2.b32 %v, {%r1, %v};")), "");
  EXPECT_NE(refusal(in_kernel(vectors + "mov.v4.f32 %w0, %v;")), "");
  EXPECT_NE(refusal(in_kernel(vectors + "add.f32 %w0, %w1, %w1;")), "");
  EXPECT_NE(refusal(in_kernel(vectors + "ld.global.b32 %r1, [%v];")), "");
  EXPECT_NE(refusal(in_kernel(".reg .v2 .pred %q;")), "");
  EXPECT_NE(refusal(in_kernel(".reg .v4 .b32 %many<1000000>;")), "");
}

TEST(Parser, ReadsDebugAndPragmaDirectives) {
  EXPECT_EQ(refusal(kHeader + R"(
    .file 1 "a.cu", 1, 2
    .pragma "nounroll";
    .visible .entry k() {
      .loc 1 2 3, function_name $L__info_string0, inlined_at 1 3 4
      .pragma "nounroll";
      ret;
    }
    .section .debug_str { $L__info_string0: .b8 95, 90 .b8 0 }
  )"),
            "");
}

TEST(Parser, RefusesWhatIsTooLargeOrTooDeep) {
  EXPECT_NE(refusal(in_kernel(std::string(100, '{'))), "");
  EXPECT_NE(refusal(in_kernel(".reg .b32 %many<2000000000>;")), "");
  EXPECT_NE(refusal(in_kernel(".local .b8 big[100000000];")), "");
  EXPECT_NE(refusal(kHeader + ".global .b8 big[99999999999999999];"), "");
  EXPECT_NE(refusal(kHeader + ".global .b32 big[4294967296][4294967296];"), "");
  EXPECT_NE(refusal(kHeader + ".global .u32 x = " + std::string(100000, '(') + "1;"), "");
  EXPECT_NE(refusal(kHeader + ".global .u32 x = " + std::string(100000, '-') + "1;"), "");
  EXPECT_NE(refusal(kHeader + ".global .u32 x[9] = " + std::string(100000, '{') + "1;"), "");
  EXPECT_NE(refusal(kHeader + ".entry k(.param .b8 a[40000]) {ret;}"), "");
}

// A few words each, and much memory.
TEST(Parser, RefusesTooManyRegistersOfAllFunctions) {
  std::string text = kHeader;
  const auto declare = [&](std::size_t count) {
    text += ".func f" + std::to_string(text.size()) + "() { .reg .b8 r<" + std::to_string(count) +
            ">; ret; }\n";
  };
  for (std::size_t i = 0; i < kAllRegistersMax / kRegistersMax; ++i) declare(kRegistersMax);
  EXPECT_TRUE(parse(text, nullptr).ok());
  declare(1);
  EXPECT_FALSE(parse(text, nullptr).ok());
}

// The results are ptxas's.
TEST(Parser, CalculatesConstantsAsTheAssemblerDoes) {
  struct Case {
    std::string expression;
    std::int64_t result;
  };
  const Case cases[] = {
      {"(-8)/2", -4},
      {"-16>>2", -4},
      {"-7 % 3", 0},
      {"(8 % 3)-5<0", 0},
      {"(5>3)?7:8", 7},
      {"5>=6", 0},
      {"5<=5", 1},
      {"5!=5", 0},
      {"3&1==1", 1},
      {"1|2&&0", 0},
      {"0||2", 1},
      {"!5", 0},
      {"!0U-2<0", 1},
      {"-1<0U", 0},
      {"-1<1U", 0},
      {"(.u64)-8/2", 9223372036854775804ll},
      {"(.s64)-8U/2", -4},
      {"1<<4|1", 17},
      {"0x8000000000000000>>60", 8},
      {"-10/3U", 6148914691236517202ll},
      {"0xffffffffffffffffU>>1", 9223372036854775807ll},
      {"18446744073709551615/2", 9223372036854775807ll},
      {"~0>>60", 15},
      {"1?0?5:6:7", 6},
      {"0?1:0?3:4", 4},
      {"(1?-8:2U)/2", -4},
      {"(-8|0U)/2", 9223372036854775804ll},
      {"(-8|0)/2", -4},
      {"(-8>>0U)/2", -4},
      {"1<<65", 2},
      {"1>>-1", 0},
      {"-1>>70", -1},
      {"3>2>1", 0},
      {"5==3<4", 0},
      {"1|2^3&4", 3},
      {"10-2*3", 4},
      {"2*3 % 4", 2},
      {"(-9223372036854775807-1) % -1", std::numeric_limits<std::int64_t>::min()},
      {"WARP_SZ-40>>1", -4},
  };
  for (const Case& each : cases) {
    auto parsed = parse(kHeader + ".global .s64 x = " + each.expression + ";", nullptr);
    ASSERT_TRUE(parsed.ok()) << each.expression << ": " << parsed.error().message;
    const Variable& x = (*parsed)->variables()[*(*parsed)->find_variable("x")];
    std::int64_t result = 0;
    ASSERT_EQ(x.initial.size(), sizeof(result));
    std::memcpy(&result, x.initial.data(), sizeof(result));
    EXPECT_EQ(result, each.result) << each.expression;
  }
}

TEST(Parser, ReadsConstantsWhereverANumberMayStand) {
  auto parsed = parse(kHeader + R"(
    .global .align 8 .u64 t[3] = {t+1<<4, generic(t)+4*2-1, t+5>3?8:16};
    .visible .entry k(.param .u64 p) { .reg .b32 %r<4>; .reg .b64 %d;
      mov.u32 %r1, !0; mov.u32 %r1, WARP_SZ*2; mov.u32 %r1, 3==3?100:200;
      ld.global.u32 %r1, [t+4*2]; ld.global.u32 %r1, [%d+1<<2]; ld.global.u32 %r1, [%d-4];
      ret; })",
                      nullptr);
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  const Module& module = **parsed;
  const Variable& table = module.variables()[*module.find_variable("t")];
  ASSERT_EQ(table.relocations.size(), 3u);
  EXPECT_EQ(table.relocations[0].addend, 16);
  EXPECT_EQ(table.relocations[1].addend, 7);
  EXPECT_EQ(table.relocations[2].addend, 8);
  const Code& code = module.functions()[module.kernels()[0]].code;
  std::vector<std::uint64_t> numbers;
  std::vector<std::int64_t> offsets;
  for (const Operand& each : code.operands) {
    if (each.kind == Operand::Kind::kInteger) numbers.push_back(each.bits);
    if (each.memory) offsets.push_back(each.value);
  }
  EXPECT_EQ(numbers, (std::vector<std::uint64_t>{1, 64, 100}));
  EXPECT_EQ(offsets, (std::vector<std::int64_t>{8, 4, -4}));
}

TEST(Parser, RefusesMalformedConstants) {
  for (const std::string each : {"5/0", "5 % 0", "1?2:1/0", "1?2", "1?2,3:4", "1<2.0", "1.5<<2",
                                 "(.s64)1.5", "1==", "=1", "&&1", "1.5&&2.5", "1.5?2:3"}) {
    EXPECT_NE(refusal(kHeader + ".global .s64 x = " + each + ";"), "") << each;
  }
  for (const std::string each :
       {"1+2.0", "1.0+2", "1.0/0.0", "1.0/-0.0", "1.0 % 2.0", "1.0<<2.0", "1?2.0:3.0",
        "1.0?2.0:3.0", "!1.0", "~1.0", "1.0&&1.0", "0f40000000+1.0", "1.0*0f40000000", "1.0+"}) {
    EXPECT_NE(refusal(kHeader + ".global .f64 x = " + each + ";"), "") << each;
  }
}

// The results are ptxas's.
TEST(Parser, CalculatesFloatingPointConstantsAsTheAssemblerDoes) {
  const auto initial = [](const std::string& type, const std::string& expression) {
    auto parsed = parse(kHeader + ".global " + type + " x = " + expression + ";", nullptr);
    EXPECT_TRUE(parsed.ok()) << expression;
    std::uint64_t bits = 0;
    if (!parsed.ok()) return bits;
    const Variable& x = (*parsed)->variables()[*(*parsed)->find_variable("x")];
    std::memcpy(&bits, x.initial.data(), x.initial.size());
    return bits;
  };
  struct Case {
    std::string expression;
    std::uint64_t of_f32, of_f64;
  };
  const Case cases[] = {
      {"1.0+2.0", 0x40400000, 0x4008000000000000},
      {"1.0-0.5", 0x3f000000, 0x3fe0000000000000},
      {"-(1.0+2.0)", 0xc0400000, 0xc008000000000000},
      {"-3.0*2.0-1.0", 0xc0e00000, 0xc01c000000000000},
      {"7.0/2.0", 0x40600000, 0x400c000000000000},
      {"(1.0+2.0)*2.0", 0x40c00000, 0x4018000000000000},
      {"1.0 - -1.0", 0x40000000, 0x4000000000000000},
      {"1.0/3.0", 0x3eaaaaab, 0x3fd5555555555555},
      {"0d4000000000000000+1.0", 0x40400000, 0x4008000000000000},
      {"16777217.0+0.0", 0x4b800000, 0x4170000010000000},
      {"1e300*1e300", 0x7f800000, 0x7ff0000000000000},
      {".5", 0x3f000000, 0x3fe0000000000000},
      {"-.5E+1", 0xc0a00000, 0xc014000000000000},
      {"5.e2", 0x43fa0000, 0x407f400000000000},
      {"5.", 0x40a00000, 0x4014000000000000},
  };
  for (const Case& each : cases) {
    EXPECT_EQ(initial(".f32", each.expression), each.of_f32) << each.expression;
    EXPECT_EQ(initial(".f64", each.expression), each.of_f64) << each.expression;
  }
  EXPECT_EQ(initial(".u32", "1.0<2.0"), 1u);
  EXPECT_EQ(initial(".u32", "1.0==2.0"), 0u);
  EXPECT_EQ(initial(".u32", "1.0!=1.0"), 0u);
  EXPECT_EQ(initial(".u32", "1.0/3.0 >= 0.5"), 0u);
  EXPECT_EQ(initial(".u32", "(1.0<=2.0)+5"), 6u);
  EXPECT_EQ(initial(".u32", "1.0>=2.0?3:4"), 4u);
}

TEST(Parser, ReadsFloatingPointExpressionsAsOperands) {
  EXPECT_EQ(refusal(in_kernel(".reg .f32 %f<3>; .reg .f64 %g<3>; .reg .pred %q;"
                              "fma.rn.f32 %f0, %f1, 2.0*3.0, -(1.0+4.0); "
                              "add.f64 %g0, %g1, 1.0/3.0; setp.lt.f32 %q, %f0, -1.0*2.0;"
                              "mov.u32 %r1, 1.0<2.0;")),
            "");
  EXPECT_NE(refusal(in_kernel("mov.v4.u32 {%r1, %r2, %r3, %r4}, %laneid;")), "");
}

TEST(Parser, ReadsElementsOfArrays) {
  const std::string arrays = kHeader + ".global .u32 a[8]; .global .u32 one; " +
                             ".global .v4 .f32 v; .shared .u16 s[4];\n" +
                             ".visible .entry k(.param .u32 q[4], .param .u64 p) {" +
                             ".reg .b32 %r<4>; .reg .b64 %d<4>; .reg .pred %p; .reg .f32 %f; " +
                             ".reg .b128 %w; .local .b64 l[2];\n";
  for (const std::string each :
       {"ld.global.u32 %r1, a[3];", "st.global.v2.u32 a[%r1+2], {%r1, %r2};", "ld.u32 %r1, a[%d1];",
        "mov.u64 %d1, a[%r1];", "ldu.global.u32 %r1, a[1];", "cvta.global.u64 %d1, a[1];",
        "mov.u32 %r1, s[1+2*3];", "ld.shared.u16 %r1, s[%r1+-1];", "st.local.b64 l[%r1], %d1;",
        "ld.param.u32 %r1, q[%r2];"}) {
    EXPECT_EQ(refusal(arrays + each + " ret;}"), "") << each;
  }
  for (const std::string each :
       {"ld.global.u32 %r1, one[0];", "ld.global.f32 %f, v[1];", "ld.global.u32 %r1, [a[3]];",
        "ld.global.u32 %r1, a[1][2];", "ld.global.u32 %r1, a[1]+4;", "ld.global.u32 %r1, a[];",
        "ld.global.u32 %r1, a[%p];", "ld.global.u32 %r1, a[%f];", "ld.global.u32 %r1, a[%w];",
        "ld.global.u32 %r1, a[1.0];", "ld.global.u32 %r1, a[%r1", "ld.global.u32 %r1, a[2+%r1];",
        "ld.global.u32 %r1, a[%r1*2];", "ld.global.u32 %r1, %d1[4];", "ld.global.u32 %r1, a;",
        "atom.global.add.u32 %r1, a[1], 3;", "mov.b64 %d1, {s[1], s[2]};",
        "ld.param.u64 %d1, p[0];"}) {
    EXPECT_NE(refusal(arrays + each + " ret;}"), "") << each;
  }
}

TEST(Parser, RefusesToWriteToAParameter) {
  const std::string why = refusal(in_kernel("st.param.u64 [p], %d1;"));
  EXPECT_NE(why.find("'st.param.u64' writes to the function input parameter 'p'"),
            std::string::npos)
      << why;
  EXPECT_NE(refusal(kHeader + ".func f(.param .b32 x) { st.param.b32 [x], 1; ret; }"), "");
  EXPECT_EQ(refusal(kHeader + ".func (.param .b32 x) f() { st.param.b32 [x], 1; ret; }"), "");
}

TEST(Parser, RefusesVariablesOfOtherSpaces) {
  const std::string variables = ".shared .b32 s; ";
  for (const std::string each :
       {"ld.global.b64 %d1, [p];", "ld.b64 %d1, [p];", "ld.shared.b64 %d1, [p];",
        "ld.global.b32 %r1, [s];", "atom.global.add.u32 %r1, [s], 1;", "ld.param.b32 %r1, [s];"}) {
    const std::string why = refusal(in_kernel(variables + each));
    EXPECT_NE(why.find("of another state space"), std::string::npos) << each << why;
  }
  EXPECT_EQ(refusal(in_kernel(variables + "ld.b32 %r1, [s]; ld.param.b64 %d1, [p];")), "");
  const std::string why = refusal(kHeader +
                                  ".entry k(.param .texref t) { .reg .b32 %r; "
                                  "txq.width.b32 %r, [t]; ret; }");
  EXPECT_NE(why.find("names a reference as a parameter"), std::string::npos) << why;
}

TEST(Parser, RefusesEveryTruncationWithoutHarm) {
  const std::string text = kHeader + R"(
    .global .align 8 .u64 t[2] = {generic(t)+8, 0xFF};
    .visible .entry k(.param .u64 p) {
      .reg .b32 %r<4>; .reg .pred %p;
      mov.u32 %r1, %tid.x; setp.eq.u32 %p, %r1, 0; @!%p bra out; { add.u32 %r2, %r1, -1; }
      out: ret;
    })";
  for (std::size_t size = 0; size + 1 < text.size(); ++size) {
    const std::string part = text.substr(0, size);
    const std::string why = refusal(part);
    // A prefix that ends between two directives is a smaller module.
    if (why.empty()) continue;
    EXPECT_NE(why.find("PTX line"), std::string::npos);
  }
}

TEST(Link, ResolvesWhatOtherModulesDefine) {
  const auto one = parse(kHeader + R"(
    .extern .func (.param .b32 r) f(.param .b32 x);
    .extern .global .u32 shared_counter;
    .visible .entry k() { .reg .b32 %r; .reg .b64 %d; mov.u64 %d, shared_counter;
      { .param .b32 a; .param .b32 b; st.param.b32 [a], 1; call (b), f, (a); } ret; }
  )",
                         nullptr);
  const auto two = parse(kHeader + R"(
    .visible .global .u32 shared_counter = 5;
    .visible .func (.param .b32 r) f(.param .b32 x) { st.param.b32 [r], 3; ret; }
  )",
                         nullptr);
  ASSERT_TRUE(one.ok() && two.ok());
  EXPECT_FALSE(translate(*one, nullptr).ok());
  const std::shared_ptr<const Module> modules[] = {*one, *two};
  const auto linked = link(modules, nullptr);
  ASSERT_TRUE(linked.ok()) << linked.error().message;
  EXPECT_TRUE((*linked)->functions()[*(*linked)->find_function("f")].defined);
  EXPECT_EQ((*linked)->variables().size(), 1u);
  EXPECT_TRUE(translate(*linked, nullptr).ok());
  const std::shared_ptr<const Module> twice[] = {*one, *two, *two};
  JitLog log;
  EXPECT_FALSE(link(twice, &log).ok());
  EXPECT_NE(log.errors().find("Multiple definition"), std::string::npos);
  const std::shared_ptr<const Module> alone[] = {*one};
  EXPECT_NE(link(alone, nullptr).error().message.find("shared_counter"), std::string::npos);
}

}  // namespace
}  // namespace flyt::ptx
