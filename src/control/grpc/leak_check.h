// What a build that looks for leaks needs of gRPC.
#pragma once

namespace flyt::control {

// Before gRPC makes a thread that encrypts: at exit, such threads end before OpenSSL does, which
// else leaves what they have (their random generators) to be found as a leak. Nothing in other
// builds: a thread that looks up a name may take seconds. Safe from any thread.
void end_threads_before_leaks_are_looked_for();

}  // namespace flyt::control
