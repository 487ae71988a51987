"""TRL's SFTTrainer on the same base, tokens, LoRA, global batch and schedule. Run by the bench `train`.

    python peer_train.py JOB

JOB is a JSON file: base, tokens (parquet), lora, learning_rate, warmup, epochs, steps, global_batch, threads, seed,
started (time.time() when the process was asked for), warm_steps, out, and `setting`: micro_batch, packing, grouped,
bf16, base_bf16, workers, checkpointing. Prints one JSON line.
"""

import json
import math
import os
import resource
import sys
import time
from pathlib import Path

job = json.loads(Path(sys.argv[1]).read_text())
os.environ["OMP_NUM_THREADS"] = str(job["threads"])
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["HF_HUB_OFFLINE"] = "1"

import torch  # noqa: E402
from datasets import Dataset  # noqa: E402
from peft import LoraConfig  # noqa: E402
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback  # noqa: E402
from trl import SFTConfig, SFTTrainer  # noqa: E402


def cpu_seconds() -> float:
    """Of this process and of those workers of its that have ended."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(used.ru_utime + used.ru_stime for used in both)


def memory_mib(name: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return round(next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) / 1024, 1)


def gpu_mib() -> float:
    return round(torch.cuda.max_memory_allocated() / 2**20, 1) if torch.cuda.is_available() else 0.0


class Watch(TrainerCallback):
    """Wall and processor seconds at the end of each optimizer step."""

    def __init__(self) -> None:
        self.marks: list[tuple[float, float]] = []

    def on_step_end(self, args, state, control, **kwargs):
        self.marks.append((time.time(), cpu_seconds()))


def main() -> None:
    setting = job["setting"]
    torch.set_num_threads(job["threads"])
    imported = time.time() - job["started"]
    tokens = Dataset.from_parquet(job["tokens"], cache_dir=f"{job['out']}/cache")
    train = tokens.filter(lambda split: split == "train", input_columns="split").remove_columns("split")
    # Rebuilt: a table's 64-bit list offsets are not equal to the 32-bit ones of TRL's labels, and packing refuses that.
    train = Dataset.from_dict(train.to_dict())
    counts = [len(ids) for ids in train["input_ids"]]
    steps = job["steps"]
    per_step = setting["micro_batch"]
    model = AutoModelForCausalLM.from_pretrained(
        job["base"], dtype=torch.bfloat16 if setting["base_bf16"] else torch.float32, attn_implementation="sdpa"
    )
    config = SFTConfig(
        output_dir=f"{job['out']}/trl",
        max_length=job["max_length"],
        per_device_train_batch_size=per_step,
        gradient_accumulation_steps=max(1, round(job["global_batch"] / per_step)),
        num_train_epochs=job["epochs"],
        max_steps=-1 if steps is None else steps,
        learning_rate=job["learning_rate"],
        lr_scheduler_type="cosine",
        warmup_steps=math.ceil(job["warmup"]),
        weight_decay=0.0,
        max_grad_norm=1.0,
        bf16=setting["bf16"],
        packing=setting["packing"],
        completion_only_loss=True,
        train_sampling_strategy="group_by_length" if setting["grouped"] else "random",
        gradient_checkpointing=setting["checkpointing"],
        dataloader_num_workers=setting["workers"],
        dataloader_persistent_workers=setting["workers"] > 0,
        dataloader_pin_memory=False,
        use_cpu=not torch.cuda.is_available(),
        report_to="none",
        logging_strategy="no",
        save_strategy="no",
        eval_strategy="no",
        disable_tqdm=True,
        seed=job["seed"],
    )
    watch = Watch()
    trainer = SFTTrainer(
        model=model,
        args=config,
        train_dataset=train,
        processing_class=AutoTokenizer.from_pretrained(job["base"]),
        peft_config=LoraConfig(task_type="CAUSAL_LM", bias="none", lora_dropout=0.0, **job["lora"]),
        callbacks=[watch],
    )
    seen: list[int] = []
    collate = trainer.data_collator

    def counted(rows):
        seen.append(sum(len(row["input_ids"]) for row in rows))
        return collate(rows)

    if setting["workers"] == 0:
        trainer.data_collator = counted
    trainer.train()
    trainer.model.save_pretrained(f"{job['out']}/adapter")
    marks, warm = watch.marks, job["warm_steps"]
    accumulation = config.gradient_accumulation_steps
    steady = len(marks) - warm
    if seen:
        used = seen[warm * accumulation : len(marks) * accumulation]
        trained = sum(used)
    else:  # workers collate in other processes: the mean length, over all epochs
        trained = sum(counts) / math.ceil(len(counts) / job["global_batch"]) * steady
    print(
        json.dumps(
            {
                "first_step_s": marks[0][0] - job["started"],
                "imports_s": imported,
                "steps": len(marks),
                "tokens": trained,
                "wall_s": marks[-1][0] - marks[warm - 1][0],
                "cpu_s": marks[-1][1] - marks[warm - 1][1],
                "peak_mib": memory_mib("VmHWM"),
                "gpu_peak_mib": gpu_mib(),
                "adapter": f"{job['out']}/adapter",
            }
        )
    )


if __name__ == "__main__":
    main()
