#include "control/cli/node/completion.h"

#include <algorithm>
#include <array>

namespace flyt::cli {
namespace {

struct Command {
  std::string_view name;
  std::string_view about;
  std::string_view options;  // Beside those that every command has.
  bool takes_lease = false;
};

constexpr std::array kCommands = {
    Command{"describe", "GPUs and their groups, or one lease", "", true},
    Command{"leases", "list leases", ""},
    Command{"create", "make a lease",
            "--sms --memory --gpu --mode --priority --expires-in --label"},
    Command{"resize", "change a lease", "--sms --memory", true},
    Command{"release", "end a lease", "", true},
    Command{"sessions", "list client processes", "", true},
    Command{"token", "issue a token for clients", "--lasts --export --tcp", true},
    Command{"drain", "make no new leases", ""},
    Command{"undrain", "make new leases again", ""},
    Command{"events", "what happened", "--follow --after"},
    Command{"top", "leases, live", "--interval --pages"},
    Command{"health", "what is wrong", ""},
    Command{"completion", "a script for a shell", ""},
};
constexpr std::string_view kGlobal = "--node --cert --key --ca --json --help";

std::string names() {
  std::string all;
  for (const Command& command : kCommands) {
    all += (all.empty() ? "" : " ") + std::string(command.name);
  }
  return all;
}

// The names of leases come from the node itself.
std::string bash() {
  std::string cases;
  for (const Command& command : kCommands) {
    if (command.name == "completion") continue;
    cases += "    " + std::string(command.name) + ") words=\"" + std::string(command.options) +
             "\"" + (command.takes_lease ? "; leases=1" : "") + " ;;\n";
  }
  return R"sh(_flytctl_leases() {
  flytctl "$@" leases 2>/dev/null | awk 'NR > 1 { print $1 }'
}
_flytctl() {
  local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}
  local command="" words="" leases="" where=() i
  case $previous in
    --cert|--key|--ca) COMPREPLY=($(compgen -f -- "$word")); return ;;
    --mode) COMPREPLY=($(compgen -W "isolated shared" -- "$word")); return ;;
    completion) COMPREPLY=($(compgen -W "bash zsh fish" -- "$word")); return ;;
  esac
  for ((i = 1; i < COMP_CWORD; i++)); do
    case ${COMP_WORDS[i]} in
      --node|--cert|--key|--ca) where+=("${COMP_WORDS[i]}" "${COMP_WORDS[i+1]}"); ((i++)) ;;
      -*) ;;
      *) command=${COMP_WORDS[i]}; break ;;
    esac
  done
  case $command in
    "") words=")sh" +
         names() + "\" ;;\n" + cases + "  esac\n  words+=\" " + std::string(kGlobal) + R"sh("
  [[ -n $leases ]] && words+=" $(_flytctl_leases "${where[@]}")"
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}
complete -F _flytctl flytctl
)sh";
}

std::string zsh() {
  std::string list;
  std::string cases;
  for (const Command& command : kCommands) {
    const std::string name(command.name);
    list += "    '" + name + ":" + std::string(command.about) + "'\n";
    if (command.name == "completion") continue;
    cases +=
        "    " + name + ") words=(" + std::string(command.options) + ")" +
        (command.takes_lease ? "; words+=($(flytctl leases 2>/dev/null | awk 'NR>1{print $1}'))"
                             : "") +
        " ;;\n";
  }
  return "#compdef flytctl\n_flytctl() {\n  local -a commands words\n  commands=(\n" + list +
         "  )\n  if (( CURRENT == 2 )); then\n    _describe command commands\n    return\n  fi\n" +
         "  case $words[2] in\n    completion) _values shell bash zsh fish; return ;;\n  esac\n" +
         "  local command=$words[2]\n  words=()\n  case $command in\n" + cases +
         "  esac\n  compadd -- $words " + std::string(kGlobal) + "\n}\ncompdef _flytctl flytctl\n";
}

std::string fish() {
  std::string out = "set -l commands " + names() + "\n";
  for (const Command& command : kCommands) {
    const std::string name(command.name);
    out += "complete -c flytctl -f -n \"not __fish_seen_subcommand_from $commands\" -a " + name +
           " -d \"" + std::string(command.about) + "\"\n";
    std::string_view left = command.options;
    while (!left.empty()) {
      const std::string_view option = left.substr(0, left.find(' '));
      out += "complete -c flytctl -n \"__fish_seen_subcommand_from " + name + "\" -l " +
             std::string(option.substr(2)) + "\n";
      left.remove_prefix(std::min(left.size(), option.size() + 1));
    }
    if (command.takes_lease) {
      out += "complete -c flytctl -f -n \"__fish_seen_subcommand_from " + name +
             "\" -a \"(flytctl leases 2>/dev/null | awk 'NR>1{print \\$1}')\"\n";
    }
  }
  for (const char* option : {"cert", "key", "ca"}) {
    out += std::string("complete -c flytctl -l ") + option + " -r -d \"For TLS\"\n";
  }
  return out +
         "complete -c flytctl -l node -x -d \"Where the node manager is\"\n"
         "complete -c flytctl -l json -d \"As JSON\"\n"
         "complete -c flytctl -f -n \"__fish_seen_subcommand_from completion\""
         " -a \"bash zsh fish\"\n";
}

}  // namespace

std::string ctl_completion_script(std::string_view shell) {
  if (shell == "bash") return bash();
  if (shell == "zsh") return zsh();
  if (shell == "fish") return fish();
  return {};
}

}  // namespace flyt::cli
