"""Counts the rows of a data set in the pool of one thread that reads it (ARROW_IO_THREADS=1, pyarrow 13)."""
import os, signal
signal.alarm(120)
import pyarrow, pyarrow.dataset, pyarrow.parquet
path = "/opt/app/rows.parquet"
pyarrow.parquet.write_table(pyarrow.table({"row": list(range(100))}), path)
rows = pyarrow.dataset.dataset(path, format="parquet")
print("READY pids=%d" % os.getpid(), flush=True)
print(rows.count_rows(use_threads=False))
