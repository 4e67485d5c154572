# Completion of ./dev for bash:  source <(./dev completion)
_flyt_dev() {
  local word="${COMP_WORDS[COMP_CWORD]}" command="${COMP_WORDS[1]:-}" words=""
  local commands="setup build test lint fmt demo bench gpu-test gpu-bench fuzz sim bundle package where completion help"
  if ((COMP_CWORD == 1)); then
    words="$commands"
  else
    case "$command" in
      setup) words="--tidy --fuzz --help" ;;
      build) words="--preset release dev tsan fuzz --help" ;;
      test) words="--quick --preset --filter --keep-going --help" ;;
      lint) words="--tidy --help" ;;
      fmt) words="--check --help" ;;
      demo) words="--driver --url --keep-log --help" ;;
      bench) words="placement --delay --seed --help-bench --help" ;;
      gpu-test) words="--out --only --minutes --frameworks --transport --jobs --url --driver --help" ;;
      gpu-bench) words="--out --only --transports --repeat --quick --minutes --driver --elastic --resizes --help" ;;
      fuzz) words="--minutes --target --replay --help" ;;
      sim) words="--seeds --first --preset --help" ;;
      bundle | package | completion) words="--help" ;;
      help) words="$commands --help" ;;
      where) words="$(sed -n 's/.*[ *]\(cu[A-Z][A-Za-z0-9_]*\)(.*/\1/p' api/cuda/*.api 2>/dev/null)" ;;
    esac
  fi
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
  case "$command" in lint | fmt) mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "$word") ;; esac
}
complete -F _flyt_dev ./dev dev
