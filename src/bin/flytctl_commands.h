// The command line of flytctl: what there is, and what is done for it.
#pragma once

#include <string>

#include "bin/command_line.h"
#include "control/cli/cluster/authority.h"
#include "control/cli/cluster/commands.h"
#include "control/cli/cluster/enrol.h"
#include "control/cli/config/commands.h"
#include "control/cli/node/commands.h"

namespace flyt::ctl {

// Where a command goes is settled when the command line has been read.
struct Options {
  cli::CtlOptions node;
  cli::ClusterOptions cluster;
  cli::AuthorityOptions authority;
  cli::EnrolOptions enrol;
  cli::ConfigOptions configs;
  std::string cluster_flag;
  std::string node_flag;
  std::string cert;
  std::string key;
  std::string ca;
  std::string config;
  std::string shell;
};

void add_global(const Command& app, Options& options);
// What a cluster and a node both have, or a node alone.
void add_node_commands(const Command& app, Options& options);
void add_cluster_commands(const Command& app, Options& options);
void add_flyt_commands(const Command& app, Options& options);
// To the help of each command that there is by then; `front` is what stands before its name.
void add_examples(const Command& app, const std::string& front = {});

// Sets the address: of the flags, the environment, the file of settings, the default; true: it is a
// cluster's.
Result<bool> settle(const Command& command, Options& options);

Status run(const Command& command, Options& options);

}  // namespace flyt::ctl
