#include "control/cli/completion.h"

#include <array>
#include <span>
#include <string>

namespace flyt::cli {
namespace {

enum class Takes { kNothing, kText, kFile, kFolder };

struct Option {
  std::string_view name;
  std::string_view about;
  Takes takes = Takes::kNothing;
  bool repeatable = false;
};

constexpr Option kServer{"server", "address of the GPU server", Takes::kText};
constexpr Option kTokenFile{"token-file", "the token that it wants", Takes::kFile};
constexpr Option kWait{"wait", "seconds to wait for a virtual GPU", Takes::kText};
constexpr Option kVerbose{"verbose", "say what happens"};
constexpr Option kJson{"json", "as JSON"};

constexpr std::array kRun = {kServer, kTokenFile, kWait, kVerbose};
constexpr std::array kTrace = {kServer,
                               kTokenFile,
                               kWait,
                               kVerbose,
                               kJson,
                               Option{"output", "where the report goes", Takes::kFile},
                               Option{"chrome", "a trace-event file", Takes::kFile},
                               Option{"events", "calls that it holds", Takes::kText},
                               Option{"read", "a recording", Takes::kFile, true}};
constexpr std::array kClient = {Option{"root", "of another system", Takes::kFolder},
                                Option{"library", "folder of the libraries", Takes::kFolder}};
constexpr std::array kQuestion = {kServer, kJson};
constexpr std::array kVersion = {kJson};

// None of the texts has quotes.
struct Command {
  std::string_view name;
  std::string_view about;
  std::span<const Option> options = {};
  std::string_view words = {};  // What stands behind it.
  bool program = false;         // Behind -- there is one, with arguments.
};

constexpr std::array kCommands = {
    Command{"run", "run a program with the GPU of a server", kRun, {}, true},
    Command{"trace", "run a program and tell what it called", kTrace, {}, true},
    Command{"client", "the client library of this machine", kClient, "install restore status"},
    Command{"server-info", "what a server says about itself", kQuestion},
    Command{"smi", "GPUs of a server, and who uses them", kQuestion},
    Command{"version", "the version", kVersion},
    Command{"completion", "a script for a shell", {}, "bash zsh fish"},
};

std::string names() {
  std::string all;
  for (const Command& command : kCommands) {
    all += (all.empty() ? "" : " ") + std::string(command.name);
  }
  return all;
}

// The options of all commands that take such, as a pattern of bash.
std::string pattern(Takes takes) {
  std::string all;
  for (const Command& command : kCommands) {
    for (const Option& option : command.options) {
      const std::string one = "--" + std::string(option.name);
      if (option.takes != takes || ("|" + all + "|").find("|" + one + "|") != std::string::npos) {
        continue;
      }
      all += (all.empty() ? "" : "|") + one;
    }
  }
  return all;
}

std::string bash() {
  std::string cases;
  for (const Command& command : kCommands) {
    cases += "      " + std::string(command.name) + ") words=\"" + std::string(command.words);
    for (const Option& option : command.options) cases += " --" + std::string(option.name);
    cases += std::string(" --help") + (command.program ? " --" : "") + "\" ;;\n";
  }
  return R"sh(_flyt() {
  local word=${COMP_WORDS[COMP_CWORD]} words="" i
  for ((i = 1; i < COMP_CWORD; i++)); do
    if [[ ${COMP_WORDS[i]} == -- ]]; then
      COMPREPLY=($(compgen -c -f -- "$word"))
      return
    fi
  done
  case ${COMP_WORDS[COMP_CWORD-1]} in
    )sh" +
         pattern(Takes::kFile) +
         R"sh() COMPREPLY=($(compgen -f -- "$word")); return ;;
    )sh" +
         pattern(Takes::kFolder) +
         R"sh() COMPREPLY=($(compgen -d -- "$word")); return ;;
    )sh" +
         pattern(Takes::kText) +
         R"sh() COMPREPLY=(); return ;;
  esac
  if ((COMP_CWORD == 1)); then
    words=")sh" +
         names() + " --help --version\"\n  else\n    case ${COMP_WORDS[1]} in\n" + cases +
         R"sh(    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}
complete -F _flyt flyt
)sh";
}

// Of a name `commands` it would hide zsh's own, with which _normal completes programs.
std::string zsh() {
  std::string list;
  std::string cases;
  for (const Command& command : kCommands) {
    const std::string name(command.name);
    list += "    '" + name + ":" + std::string(command.about) + "'\n";
    cases += "    " + name + ") _arguments";
    for (const Option& option : command.options) {
      cases += std::string(" \\\n      '") + (option.repeatable ? "*--" : "--") +
               std::string(option.name) + "[" + std::string(option.about) + "]";
      if (option.takes == Takes::kText) cases += ":value:";
      if (option.takes == Takes::kFile) cases += ":file:_files";
      if (option.takes == Takes::kFolder) cases += ":folder:_files -/";
      cases += "'";
    }
    if (!command.words.empty()) cases += " '1:what:(" + std::string(command.words) + ")'";
    cases += " '--help[how it is used]' ;;\n";
  }
  return "#compdef flyt\n_flyt() {\n  local -a subcommands\n  subcommands=(\n" + list +
         R"sh(  )
  if (( CURRENT == 2 )); then
    _describe command subcommands
    return
  fi
  # Behind -- stands a command line of its own.
  local end=${words[(i)--]}
  if (( end < CURRENT )); then
    shift $end words
    (( CURRENT -= end ))
    _normal
    return
  fi
  shift words
  (( CURRENT-- ))
  case $words[1] in
)sh" + cases +
         "  esac\n}\ncompdef _flyt flyt\n";
}

std::string fish() {
  const std::string front = "complete -c flyt -n \"__fish_seen_subcommand_from ";
  std::string out = "set -l commands " + names() + "\n";
  for (const Command& command : kCommands) {
    const std::string name(command.name);
    out += "complete -c flyt -f -n \"not __fish_seen_subcommand_from $commands\" -a " + name +
           " -d \"" + std::string(command.about) + "\"\n";
    for (const Option& option : command.options) {
      out += front + name + "\" -l " + std::string(option.name);
      if (option.takes == Takes::kText) out += " -x";
      if (option.takes == Takes::kFile || option.takes == Takes::kFolder) out += " -r";
      out += " -d \"" + std::string(option.about) + "\"\n";
    }
    if (!command.words.empty()) {
      out += "complete -c flyt -f -n \"__fish_seen_subcommand_from " + name + "\" -a \"" +
             std::string(command.words) + "\"\n";
    }
  }
  out += R"sh(# Behind -- stands a command line of its own.
function __flyt_program
  set -l words (commandline -opc)
  set -e words[1..(contains -i -- -- $words)]
  complete -C (string join " " -- (string escape -- $words) (commandline -ct))
end
complete -c flyt -f -n "contains -- -- (commandline -opc)" -a "(__flyt_program)"
)sh";
  return out + "complete -c flyt -l help -d \"how it is used\"\n";
}

}  // namespace

std::string completion_script(std::string_view shell) {
  if (shell == "bash") return bash();
  if (shell == "zsh") return zsh();
  if (shell == "fish") return fish();
  return {};
}

}  // namespace flyt::cli
