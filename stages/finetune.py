"""Fine-tune head and encoder together, with a memory refreshed each epoch; for finetune.seeds."""

from attnknn.core.artifacts import Split
from attnknn.encoder.encoder import Encoder
from attnknn.experiments.finetune import COLUMNS, HEAD, compare_finetuned
from pipeline.load import load_heads
from pipeline.run import Run, main
from pipeline.search import search_settings


def finetune(run: Run) -> None:
    p = run.params
    encoder, about = Encoder.load(run.path("models/encoder"))
    head = load_heads(run, HEAD)[HEAD]
    fitted = Split.load(run.path("data/split")), encoder, head, head.k
    settings = p.finetune.model_dump(exclude={"seeds"}) | {"bf16": about["bf16"]}
    settings["batch_size"] = p.train_attention.batch_size
    table = compare_finetuned(*fitted, search_settings(run), p.evaluate.model_dump(), run.seed, **settings)
    run.write_tables({"finetune": COLUMNS}, finetune=table)


if __name__ == "__main__":
    main(finetune)
