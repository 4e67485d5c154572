// Elastic: measures what a lease has of a GPU's multiprocessors, and how fast it gets others.
#pragma once

#include <string>

namespace flyt::bench {

// Standard input has a line for each thing to do; each is answered by "name value" lines and then
// "done 1", or "done 0" behind what is on standard error. The end of the input ends the process,
// whose exit status this is. `control`: of the server that `library` reaches; may be empty.
//   arithmetic MS          multiply-adds a second of a kernel that fills what there is
//   groups N,N,... MS      asks the server for these groups; waits so long for its sessions
//   resize COUNT           so many changes of groups under load; how long until each was in effect
int run_elastic(const std::string& library, const std::string& control);

}  // namespace flyt::bench
