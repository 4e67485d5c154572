#include "control/cli/node/completion.h"

#include <algorithm>
#include <array>

namespace flyt::cli {
namespace {

struct Command {
  std::string_view name;
  std::string_view about;
  std::string_view options;     // Beside those that every command has; also words behind it.
  std::string_view names = {};  // The command that lists what it takes.
};

constexpr std::array kCommands = {
    Command{"describe", "GPUs and their groups, a cluster, or one of what it has", "", "leases"},
    Command{"nodes", "list nodes", "--watch", "nodes"},
    Command{"gpus", "list GPUs", "--watch", "nodes"},
    Command{"vms", "list VMs", "--watch", "vms"},
    Command{"vm", "set, forget and import VMs",
            "set rm import --sms --sms-min --sms-max --memory --address --host --policy --mode "
            "--priority --label"
            " --apart --keep --no-keep --share-sms --no-share-sms --force",
            "vms"},
    Command{"node", "forget a lost node", "rm", "nodes"},
    Command{"leases", "list leases", "--on --watch"},
    Command{"create", "make a lease",
            "--sms --memory --gpu --mode --priority --expires-in --label"},
    Command{"resize", "change a lease", "--sms --memory --when-free", "leases"},
    Command{"defrag", "move leases together", ""},
    Command{"release", "end a lease", "", "leases"},
    Command{"sessions", "list client processes", "--on --watch", "leases"},
    Command{"token", "issue a token for clients", "--lasts --export --tcp", "leases"},
    Command{"drain", "make no new leases", "", "nodes"},
    Command{"undrain", "make new leases again", ""},
    Command{"forget-leaders", "believe cluster managers again that were replaced", ""},
    Command{"cordon", "place nothing new on a node", "", "nodes"},
    Command{"uncordon", "take a node into use again", "", "nodes"},
    Command{"explain", "why a VM got what it got, or waits", "", "vms"},
    Command{"events", "what happened", "--follow --after"},
    Command{"audit", "who did what", "--after"},
    Command{"top", "leases, live", "--interval --pages"},
    Command{"health", "what is wrong", ""},
    Command{"ca", "certificates", "init issue revoke --role --host --days --dir --name"},
    Command{"enrol-token", "tokens with which machines get certificates",
            "create list revoke --role --host --lasts"},
    Command{"enrol", "get this machine's certificate", "--role --at --token-file --dir"},
    Command{"renew", "get this machine's next certificate", "--at --within --then --dir"},
    Command{"config", "check and import configurations", "check import --of --out --host --port"},
    Command{"list-vms", "VMs, as an earlier Flyt listed them", ""},
    Command{"list-servernodes", "GPUs, as an earlier Flyt listed them", ""},
    Command{"list-virt-servers", "virtual GPUs, as an earlier Flyt listed them", ""},
    Command{"change-config", "resize, as an earlier Flyt spelled it",
            "-i -s -m --ip --sm-cores --memory"},
    Command{"migrate", "not possible yet", ""},
    Command{"migrate-auto", "not possible yet", ""},
    Command{"completion", "a script for a shell", ""},
};
constexpr std::string_view kGlobal = "--cluster --node --cert --key --ca --config --json --help";

std::string joined(const std::vector<std::string>& words) {
  std::string all;
  for (const std::string& word : words) all += (all.empty() ? "" : " ") + word;
  return all;
}

std::string names() {
  std::string all;
  for (const Command& command : kCommands) {
    all += (all.empty() ? "" : " ") + std::string(command.name);
  }
  return all;
}

// Each option with its values, as a case of what the shell has found as "COMMAND OPTION".
std::string cases_of(const Choices& choices, std::string_view front, std::string_view back) {
  std::string cases;
  for (const auto& [command, options] : choices) {
    for (const auto& [option, values] : options) {
      cases += "    \"" + command + " " + option + "\") " + std::string(front) + joined(values) +
               std::string(back) + "; return ;;\n";
    }
  }
  return cases;
}

// Names come from the cluster or node itself.
std::string bash(const Choices& choices) {
  std::string cases;
  for (const Command& command : kCommands) {
    if (command.name == "completion") continue;
    cases += "    " + std::string(command.name) + ") words=\"" + std::string(command.options) +
             "\"" + (command.names.empty() ? "" : "; lists=" + std::string(command.names)) +
             " ;;\n";
  }
  return R"sh(_flytctl_names() {
  flytctl "$@" 2>/dev/null | awk 'NR > 1 { print $1 }'
}
_flytctl() {
  local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}
  local command="" words="" lists="" where=() i
  case $previous in
    --cert|--key|--ca|--config|--out|--dir|--token-file)
      COMPREPLY=($(compgen -f -- "$word")); return ;;
    check|import) [[ $word == -* ]] || { COMPREPLY=($(compgen -f -- "$word")); return; } ;;
    completion) COMPREPLY=($(compgen -W "bash zsh fish --help" -- "$word")); return ;;
  esac
  for ((i = 1; i < COMP_CWORD; i++)); do
    case ${COMP_WORDS[i]} in
      --cluster|--node|--cert|--key|--ca|--config)
        where+=("${COMP_WORDS[i]}" "${COMP_WORDS[i+1]}"); ((i++)) ;;
      -*) ;;
      *) command=${COMP_WORDS[i]}; break ;;
    esac
  done
  case "$command $previous" in
)sh" + cases_of(choices, "COMPREPLY=($(compgen -W \"", "\" -- \"$word\"))") +
         R"sh(  esac
  case $command in
    "") words=")sh" +
         names() + "\" ;;\n" + cases + "  esac\n  words+=\" " + std::string(kGlobal) + R"sh("
  [[ -n $lists ]] && words+=" $(_flytctl_names "${where[@]}" "$lists")"
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}
complete -F _flytctl flytctl
)sh";
}

// Within single quotes.
std::string quoted(std::string_view text) {
  std::string out;
  for (const char letter : text) {
    out += letter == '\'' ? std::string("'\\''") : std::string(1, letter);
  }
  return out;
}

std::string zsh(const Choices& choices) {
  std::string list;
  std::string cases;
  for (const Command& command : kCommands) {
    const std::string name(command.name);
    list += "    '" + name + ":" + quoted(command.about) + "'\n";
    if (command.name == "completion") continue;
    cases += "    " + name + ") choices=(" + std::string(command.options) + ")" +
             (command.names.empty() ? ""
                                    : "; choices+=($(flytctl $where " + std::string(command.names) +
                                          " 2>/dev/null | awk 'NR>1{print $1}'))") +
             " ;;\n";
  }
  return "#compdef flytctl\n_flytctl() {\n  local -a commands choices where\n  commands=(\n" +
         list +
         R"sh(  )
  case $words[CURRENT-1] in
    --cert|--key|--ca|--config|--out|--dir|--token-file) _files; return ;;
    check|import) [[ $words[CURRENT] == -* ]] || { _files; return; } ;;
  esac
  local command="" i
  for (( i = 2; i < CURRENT; i++ )); do
    case $words[i] in
      --cluster|--node|--cert|--key|--ca|--config)
        where+=("$words[i]" "$words[i+1]"); (( i++ )) ;;
      -*) ;;
      *) command=$words[i]; break ;;
    esac
  done
  case "$command $words[CURRENT-1]" in
)sh" + cases_of(choices, "compadd -- ", "") +
         R"sh(  esac
  case $command in
    "") _describe command commands ;;
    completion) _values shell bash zsh fish; return ;;
)sh" + cases +
         "  esac\n  compadd -- $choices " + std::string(kGlobal) +
         "\n}\ncompdef _flytctl flytctl\n";
}

// As an option of fish's; nothing if there are none.
std::string values_of(const Choices& choices, std::string_view command, const std::string& option) {
  const auto options = choices.find(command);
  if (options == choices.end()) return {};
  const auto values = options->second.find(option);
  return values == options->second.end() ? std::string()
                                         : " -x -a \"" + joined(values->second) + "\"";
}

std::string fish(const Choices& choices) {
  std::string out = "set -l commands " + names() + "\n";
  for (const Command& command : kCommands) {
    const std::string name(command.name);
    out += "complete -c flytctl -f -n \"not __fish_seen_subcommand_from $commands\" -a " + name +
           " -d \"" + std::string(command.about) + "\"\n";
    std::string_view left = command.options;
    while (!left.empty()) {
      const std::string option(left.substr(0, left.find(' ')));
      const std::string seen =
          "complete -c flytctl -n \"__fish_seen_subcommand_from " + name + "\"";
      if (option.starts_with("--")) {
        out += seen + " -l " + option.substr(2) + values_of(choices, name, option) + "\n";
      } else if (option.starts_with("-")) {
        out += seen + " -s " + option.substr(1) + "\n";
      } else {
        out += seen + " -a " + option + "\n";
      }
      left.remove_prefix(std::min(left.size(), option.size() + 1));
    }
    if (!command.names.empty()) {
      out += "complete -c flytctl -f -n \"__fish_seen_subcommand_from " + name +
             "\" -a \"(flytctl " + std::string(command.names) +
             " 2>/dev/null | awk 'NR>1{print \\$1}')\"\n";
    }
  }
  for (const char* option : {"cert", "key", "ca", "config"}) {
    out += std::string("complete -c flytctl -l ") + option + " -r -d \"For TLS\"\n";
  }
  return out +
         "complete -c flytctl -l cluster -x -d \"Where the cluster manager is\"\n"
         "complete -c flytctl -l node -x -d \"Where the node manager is\"\n"
         "complete -c flytctl -l json -d \"As JSON\"\n"
         "complete -c flytctl -f -n \"__fish_seen_subcommand_from completion\""
         " -a \"bash zsh fish\"\n";
}

}  // namespace

std::string ctl_completion_script(std::string_view shell, const Choices& choices) {
  if (shell == "bash") return bash(choices);
  if (shell == "zsh") return zsh(choices);
  if (shell == "fish") return fish(choices);
  return {};
}

}  // namespace flyt::cli
