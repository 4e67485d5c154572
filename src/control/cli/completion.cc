#include "control/cli/completion.h"

namespace flyt::cli {
namespace {

constexpr std::string_view kBash = R"(_flyt() {
  local word=${COMP_WORDS[COMP_CWORD]} i
  for ((i = 1; i < COMP_CWORD; i++)); do
    if [[ ${COMP_WORDS[i]} == -- ]]; then
      COMPREPLY=($(compgen -c -f -- "$word"))
      return
    fi
  done
  case ${COMP_WORDS[1]} in
    run) COMPREPLY=($(compgen -W "--server --wait --verbose --help --" -- "$word")) ;;
    client)
      case ${COMP_WORDS[COMP_CWORD-1]} in
        --root|--library) COMPREPLY=($(compgen -d -- "$word")) ;;
        *) COMPREPLY=($(compgen -W "install restore status --root --library --help" -- "$word")) ;;
      esac ;;
    trace)
      case ${COMP_WORDS[COMP_CWORD-1]} in
        --output|--chrome|--read) COMPREPLY=($(compgen -f -- "$word")) ;;
        *) COMPREPLY=($(compgen -W "--server --verbose --json --output --chrome --events --read
             --help --" -- "$word")) ;;
      esac ;;
    server-info|smi) COMPREPLY=($(compgen -W "--server --json --help" -- "$word")) ;;
    version) COMPREPLY=($(compgen -W "--json --help" -- "$word")) ;;
    completion) COMPREPLY=($(compgen -W "bash zsh fish" -- "$word")) ;;
    *) COMPREPLY=($(compgen -W "run trace client server-info smi version completion --help" \
         -- "$word")) ;;
  esac
}
complete -F _flyt flyt
)";

constexpr std::string_view kZsh = R"(#compdef flyt
_flyt() {
  local -a commands
  commands=(run trace client server-info smi version completion)
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  case $words[2] in
    run) _arguments '--server[address of the GPU server]:url:' '--verbose[say what happens]' \
           '*::program:_normal' ;;
    trace) _arguments '--server[address of the GPU server]:url:' '--verbose[say what happens]' \
             '--json[as JSON]' '--output[where the report goes]:file:_files' \
             '--chrome[a trace-event file]:file:_files' '--events[calls that it holds]:number:' \
             '*--read[a recording]:file:_files' '*::program:_normal' ;;
    client) _arguments '1:what:(install restore status)' \
              '--root[of another system]:folder:_files -/' \
              '--library[the folder of the libraries]:folder:_files -/' ;;
    server-info|smi) _arguments '--server[address of the GPU server]:url:' '--json[as JSON]' ;;
    version) _arguments '--json[as JSON]' ;;
    completion) _values shell bash zsh fish ;;
  esac
}
compdef _flyt flyt
)";

constexpr std::string_view kFish =
    R"(set -l commands run trace client server-info smi version completion
complete -c flyt -f -n "not __fish_seen_subcommand_from $commands" -a "$commands"
complete -c flyt -n "__fish_seen_subcommand_from run trace server-info smi" -l server -x -d "Server"
complete -c flyt -n "__fish_seen_subcommand_from run trace" -l verbose -d "Say what happens"
complete -c flyt -n "__fish_seen_subcommand_from trace server-info smi version" -l json -d "As JSON"
complete -c flyt -n "__fish_seen_subcommand_from trace" -l output -r -d "Where the report goes"
complete -c flyt -n "__fish_seen_subcommand_from trace" -l chrome -r -d "A trace-event file"
complete -c flyt -n "__fish_seen_subcommand_from trace" -l events -x -d "Calls that it holds"
complete -c flyt -n "__fish_seen_subcommand_from trace" -l read -r -d "A recording"
complete -c flyt -f -n "__fish_seen_subcommand_from client" -a "install restore status"
complete -c flyt -n "__fish_seen_subcommand_from client" -l root -r -d "Of another system"
complete -c flyt -n "__fish_seen_subcommand_from client" -l library -r -d "Folder of the libraries"
complete -c flyt -f -n "__fish_seen_subcommand_from completion" -a "bash zsh fish"
)";

}  // namespace

std::string_view completion_script(std::string_view shell) {
  if (shell == "bash") return kBash;
  if (shell == "zsh") return kZsh;
  if (shell == "fish") return kFish;
  return {};
}

}  // namespace flyt::cli
