"""The parent waits for the end of a child, and the child for the parent to read its output."""
import subprocess
import sys

program = "print('x' * 1000000)"  # more than the pipe holds
child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
child.wait()
print(len(child.stdout.read()))
