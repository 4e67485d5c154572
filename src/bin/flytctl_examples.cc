// What the help of each of flytctl's commands shows.
#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "bin/flytctl_commands.h"

namespace flyt::ctl {
namespace {

struct Examples {
  std::string_view command;
  std::string_view lines;
};

constexpr std::array kExamples = {
    Examples{"nodes", "flytctl nodes\nflytctl nodes gpu-1\nflytctl nodes --watch"},
    Examples{"gpus", "flytctl gpus\nflytctl gpus gpu-1 --watch"},
    Examples{"vms",
             "flytctl vms\nflytctl vms train\nflytctl --cluster cluster-host:7700 --cert me.crt"
             " --key me.key --ca ca.crt vms --watch"},
    Examples{"vm", "flytctl vm set train --sms 32 --memory 20G\nflytctl vm rm train"},
    Examples{"vm set",
             "flytctl vm set train --sms 32 --memory 20G --address 10.0.0.7 --host gpu-1\n"
             "flytctl vm set train --sms-min 16 --sms-max 64\n"
             "flytctl vm set train --policy spread --label team=vision --apart team\n"
             "flytctl vm set train --host ''"},
    Examples{"vm rm", "flytctl vm rm train\nflytctl vm rm train --force"},
    Examples{"vm import",
             "flytctl --json vms >vms.json && flytctl vm import vms.json\n"
             "mongoexport --db flyt --collection vm_required_resources >vms.json &&"
             " flytctl vm import vms.json"},
    Examples{"node", "flytctl node rm gpu-3"},
    Examples{"node rm", "flytctl node rm gpu-3"},
    Examples{"cordon", "flytctl cordon gpu-3"},
    Examples{"uncordon", "flytctl uncordon gpu-3"},
    Examples{"explain", "flytctl explain train"},
    Examples{"audit", "flytctl audit\nflytctl --json audit --after 4711"},
    Examples{"ca", "flytctl ca init --dir ca\nflytctl ca issue anna --role operator --dir ca"},
    Examples{"ca init", "flytctl ca init --dir ca"},
    Examples{"ca issue",
             "flytctl ca issue gpu-1 --role node --host gpu-1.example.org --dir ca\n"
             "flytctl ca issue train --role vm --dir ca\n"
             "flytctl ca issue anna --role operator --days 90 --dir ca"},
    Examples{"ca revoke", "flytctl ca revoke anna --dir ca"},
    Examples{"enrol-token", "flytctl enrol-token create train --role vm"},
    Examples{"enrol-token create",
             "flytctl enrol-token create train --role vm --lasts 1h\n"
             "flytctl enrol-token create gpu-2 --role node --host gpu-2.example.org"},
    Examples{"enrol-token list", "flytctl enrol-token list"},
    Examples{"enrol-token revoke", "flytctl enrol-token revoke 5f1c0a3be2d94b77"},
    Examples{"enrol",
             "flytctl enrol gpu-2 --role node --at cluster.example.org:7702 --token-file -"},
    Examples{"renew",
             "flytctl renew gpu-2 --at cluster.example.org:7702 \\\n"
             "    --then 'systemctl try-restart flyt-node-manager'"},
    Examples{"config", "flytctl config check /etc/flyt/cluster.toml"},
    Examples{"config check",
             "flytctl config check /etc/flyt/cluster.toml /etc/flyt/node.toml\n"
             "flytctl config check --of node gpu-1.toml"},
    Examples{"config import",
             "flytctl config import cluster-mgr-config.toml servnode-config.toml client-mgr.toml"
             " --out new --host gpu-1"},
    Examples{"describe", "flytctl describe\nflytctl describe train\nflytctl describe gpu-1"},
    Examples{"leases",
             "flytctl leases --on gpu-1\nflytctl leases --watch\n"
             "flytctl --json leases | jq '.leases[] | select(.state != \"ready\") | .vm'"},
    Examples{"sessions", "flytctl sessions train\nflytctl sessions --on gpu-1 --watch"},
    Examples{"create",
             "flytctl create train --sms 32 --memory 20G --expires-in 12h --label team=vision"},
    Examples{"resize",
             "flytctl resize train --sms 64 --memory 40G\n"
             "flytctl --node unix:///run/flyt/node.sock resize train --memory 8G --when-free"},
    Examples{"defrag", "flytctl defrag"},
    Examples{"release", "flytctl release train"},
    Examples{"token",
             "eval \"$(flytctl token train --export)\" && flyt run -- python train.py\n"
             "flytctl token train --lasts 5m --export --tcp"},
    Examples{"drain", "flytctl drain gpu-3\nflytctl --node unix:///run/flyt/node.sock drain"},
    Examples{"undrain", "flytctl undrain"},
    Examples{"forget-leaders", "flytctl forget-leaders"},
    Examples{"events", "flytctl events\nflytctl --json events --follow --after 4711"},
    Examples{"top", "flytctl top --interval 5\nflytctl top --pages 1"},
    Examples{"health", "flytctl health || echo look"},
    Examples{"list-vms", "flytctl list-vms"},
    Examples{"list-servernodes", "flytctl list-servernodes"},
    Examples{"list-virt-servers", "flytctl list-virt-servers"},
    Examples{"change-config", "flytctl change-config -i 10.0.0.7 -s 32 -m 20480"},
    Examples{"migrate", "flytctl release train"},
    Examples{"migrate-auto", "flytctl release train"},
    Examples{"completion",
             "source <(flytctl completion bash)\n"
             "flytctl completion fish >~/.config/fish/completions/flytctl.fish"},
};

constexpr const char* kStatus =
    "\nExit status: 0 done, 1 it failed, 2 bad request, 3 no answer, 4 no such thing,\n"
    "5 no room, 6 refused in this state or for this user.\n";

std::string footer_of(const std::string& command) {
  std::string text = "\nExamples:\n";
  for (const Examples& one : kExamples) {
    if (one.command != command) continue;
    std::string_view left = one.lines;
    while (!left.empty()) {
      const std::string_view line = left.substr(0, left.find('\n'));
      text += "  " + std::string(line) + "\n";
      left.remove_prefix(std::min(left.size(), line.size() + 1));
    }
  }
  return text + kStatus;
}

}  // namespace

void add_examples(const Command& app, const std::string& front) {
  for (const Command& command : app.commands()) {
    const std::string name = front + command.name();
    command.footer(footer_of(name));
    add_examples(command, name + " ");
  }
}

}  // namespace flyt::ctl
