// The kernels of the tests: PTX text of our own, for sm_75 and newer unless it says otherwise.
#pragma once

namespace flyt::conformance {

// watch(word): one thread returns when *word != 0, or after ten seconds.
extern const char* const kGatePtx;

// store_value(p, v) add_one(p, n) vector_add(a, b, c, n) empty() coordinates(p)
// shared_sum(in, out) (dynamic shared memory) static_shared(out) small_blocks() (.maxntid 64)
// pick(selector...) (parameters of every size) read_globals(out)
// and globals: counter (u32, 7), words (64 u32), table (const, 1 2 3 4).
extern const char* const kBasicPtx;

// say(value): prints "value=<n>\n" with vprintf.
extern const char* const kPrintPtx;

// check(good): a failed assertion, "good" in check() at f.cu:7, if it is 0.
extern const char* const kAssertPtx;

// wild_store() writes to an address that no allocation has; trap_now() traps.
extern const char* const kFaultPtx;

// grid_barrier(counter, out): needs a cooperative launch; out[block] = blocks that had arrived.
extern const char* const kCooperativePtx;

// cluster_ranks(out): out[block] = %cluster_nctarank * 16 + %cluster_ctarank. sm_90.
// pairs(): in clusters of two blocks.
extern const char* const kClusterPtx;

// Two separate texts: caller() calls the external function twice_plus_one of the other.
extern const char* const kLinkCallerPtx;
extern const char* const kLinkCalleePtx;

// Texts that no driver may load.
extern const char* const kSyntaxErrorPtx;
extern const char* const kUnknownInstructionPtx;
extern const char* const kFutureTargetPtx;

}  // namespace flyt::conformance
