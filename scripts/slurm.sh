#!/usr/bin/env bash
#SBATCH --job-name=spo
#SBATCH --nodes=3
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=64
#SBATCH --time=2-00:00:00
#SBATCH --signal=B:TERM@1500
# A run of the pipeline in one SLURM job: the first TRAIN_NODES nodes train together, the GPUs of the others sample meanwhile;
# before and after training all GPUs sample.
#   sbatch --export=ALL,TRAIN_NODES=2,SLOTS=8 scripts/slurm.sh paper --set train.steps=1000
# The project and SPO_HOME lie at the same paths on every node. At 25 minutes before its end the job is asked to stop, which
# writes a checkpoint; `sbatch ... scripts/slurm.sh --resume RUN` goes on, with the settings that the run was made with, on
# the nodes of its own job: ask for as many, with the same TRAIN_NODES and SLOTS. --dry-run prints the command only.
set -euo pipefail
train_nodes=${TRAIN_NODES:-1}
slots=${SLOTS:-8}
mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
training=("${nodes[@]:0:train_nodes}")
sampling=("${nodes[@]:train_nodes}")
[ ${#training[@]} = "$train_nodes" ] || { echo "slurm.sh: TRAIN_NODES is $train_nodes, the job has ${#nodes[@]} nodes" >&2; exit 1; }

list() { local joined; joined=$(printf ',"%s"' "$@"); echo "[${joined:1}]"; }
settings=()
hosts=()    # by variables of this job: a resumed run goes on with the nodes of its own
for rank in "${!training[@]}"; do
    export "SPO_TRAIN_NODE_$rank=${training[rank]}"
    hosts+=("{env:SPO_TRAIN_NODE_$rank} slots=$slots")
done
SPO_TRAIN_NODES=$(IFS=,; echo "${training[*]}")
export SPO_TRAIN_NODES
settings+=(--set "train.hosts=$(list "${hosts[@]}")" --set "train.processes=$slots" --set train.zero_stage=3)
step=(srun --nodes=1 --ntasks=1 --overlap)
settings+=(--set "train.remote_shell=$(list "${step[@]}" '--nodelist={host}' bash -c)")
engine=(srun --nodes=1 --ntasks=1 --exact --gpus=1 --kill-on-bad-exit=1)    # stages before and after training: all nodes
settings+=(--set "shards.launcher=$(list "${engine[@]}")" --set "shards.engines=$((${#nodes[@]} * slots))")
if [ ${#sampling[@]} -gt 0 ]; then
    launcher=(srun --nodes=1 --ntasks=1 --exact --gpus=1 --kill-on-bad-exit=1 "--exclude={env:SPO_TRAIN_NODES}")
    settings+=(--set "train.worker_launcher=$(list "${launcher[@]}")")
    settings+=(--set "train.rollout_workers=$((${#sampling[@]} * slots))")
fi

dry=; resume=; given=()
while [ $# -gt 0 ]; do
    case $1 in
        --dry-run) dry=1 ;;
        --resume) resume=${2:?--resume needs the name of a run}; shift ;;
        *) given+=("$1") ;;
    esac
    shift
done
if [ -n "$resume" ] && [ ${#given[@]} -gt 0 ]; then
    echo "slurm.sh: --resume $resume goes on with the settings of that run, so ${given[*]} would be ignored; leave it out," \
        "or start a run with other settings: scripts/slurm.sh --like $resume --set NAME=VALUE" >&2
    exit 1
fi
command=(spo run "${given[@]:-paper}" "${settings[@]}")
[ -z "$resume" ] || command=(spo resume "$resume")
if [ -n "$dry" ]; then printf '%s\n' "${command[@]}"; exit; fi
export SPO_CANCEL_ON_TERM=1 # spo then cancels the run, which writes a checkpoint, and waits for its end
trap 'kill -TERM $spo' TERM
"${command[@]}" & spo=$!
wait $spo || wait $spo
