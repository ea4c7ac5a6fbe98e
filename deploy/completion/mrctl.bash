# Bash completion of mrctl. Install it as /usr/share/bash-completion/completions/mrctl, or source it. It starts nothing but
# mrctl itself, to name sessions and leases where this user is an admin; without a daemon it names none.

# Ids of the first column that `mrctl COMMAND --json` has, under this key.
_mrctl_ids() {
  timeout 2 "$1" "$2" --json "${@:4}" 2>/dev/null | sed -n "s/^ *\"$3\": \"\([0-9]*\)\",*$/\1/p"
}

_mrctl() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}
  local global='--socket-dir --json --admin --help'
  COMPREPLY=()

  # The command, the one below it, and the directory of the daemon that is meant.
  local i word command='' below='' dir=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    case $word in
      --socket-dir) dir=("$word" "${COMP_WORDS[++i]}") ;;
      --socket-dir=*) dir=("$word") ;;
      --reason | --deadline | --ttl | --domain | --domain-mode | --size | --access | --device | --pages | --count | --listen | --for | \
        --session | --interval | --sort | --uid | --gid | --cgroup | --config) ((i++)) ;;
      -* | =) ;;
      *)
        if [ -z "$command" ]; then command=$word
        elif [ -z "$below" ]; then below=$word
        fi
        ;;
    esac
  done

  # Values.
  local words=''
  case $prev in
    --socket-dir) mapfile -t COMPREPLY < <(compgen -d -- "$cur"); return ;;
    --config) mapfile -t COMPREPLY < <(compgen -f -- "$cur"); return ;;
    --access) words='msgs read write local_write remote_read remote_write remote_atomic relaxed_ordering on_demand hugetlb' ;;
    --pages) words='4k thp 2m' ;;
    --domain-mode) words='0600 0660 0606 0666' ;;
    --sort) words='bytes regions calls renewals lapses unclaimed age' ;;
    --session) words=$(_mrctl_ids "${COMP_WORDS[0]}" sessions session_id "${dir[@]}") ;;
    --device) words=$(timeout 2 "${COMP_WORDS[0]}" devices "${dir[@]}" 2>/dev/null | awk 'NF == 0 { exit } NR > 1 && /^[^ ]/ { print $1 }') ;;
    --domain) words=$(timeout 2 "${COMP_WORDS[0]}" domains "${dir[@]}" 2>/dev/null | awk 'NR > 1 { print $1 }') ;;
    --uid) words=$(compgen -u | xargs -r id -u 2>/dev/null) ;;
    --reason | --deadline | --ttl | --size | --count | --listen | --for | --interval | --gid | --cgroup) return ;;
  esac
  if [ -n "$words" ] || [[ $prev == --session || $prev == --device || $prev == --domain || $prev == --uid ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
    return
  fi

  case $command in
    '') words="doctor devices status top sessions leases endpoints domains metrics version register revoke drain generations reload policy
      $global --version" ;;
    top) words="--interval --sort --once $global" ;;
    sessions) words="--wide $global" ;;
    leases) words="--session --wide $global" ;;
    endpoints) words="--session $global" ;;
    register) words="--size --access --device --all-devices --pages --count --listen --ttl --domain --domain-mode --join --for $global" ;;
    drain) words="--reason --deadline --undo $global" ;;
    revoke)
      case $below in
        '') words="lease session $global" ;;
        lease)
          words="--reason $global"
          [[ $cur == -* ]] || words=$(_mrctl_ids "${COMP_WORDS[0]}" leases lease_id "${dir[@]}")
          ;;
        session)
          words="--reason $global"
          [[ $cur == -* ]] || words=$(_mrctl_ids "${COMP_WORDS[0]}" sessions session_id "${dir[@]}")
          ;;
      esac
      ;;
    generations)
      case $below in
        '') words="leave $global" ;;
        leave)
          words="--reason $global"
          [[ $cur == -* ]] || words=$(timeout 2 "${COMP_WORDS[0]}" generations "${dir[@]}" 2>/dev/null | awk 'NR > 1 && NF == 7 { print $1; print $2 }')
          ;;
      esac
      ;;
    policy)
      case $below in
        '') words="check explain $global" ;;
        check)
          [[ $cur == -* ]] || { mapfile -t COMPREPLY < <(compgen -f -- "$cur"); return; }
          words=$global
          ;;
        explain) words="--uid --gid --cgroup --config $global" ;;
      esac
      ;;
    *) words=$global ;;
  esac
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
}

complete -F _mrctl mrctl
