"""What the mini-clusters train in their demonstrations: a loop of sleeps with a checkpoint, without any framework."""

TRAINER = """import time
from horae import elastic
done = [0]
def save(folder):
    open(folder + "/done", "w").write(str(done[0]))
def load(folder):
    done[0] = int(open(folder + "/done").read())
for step in elastic.Training(steps=100000, global_batch=64, save=save, load=load, checkpoint_every_steps=50):
    time.sleep(0.02)
    done[0] += 1
    step.report(2.0 / done[0] ** 0.5)
"""
