"""Two threads take the locks of two accounts in opposite orders."""
import threading

checking, savings = threading.Lock(), threading.Lock()
both = threading.Barrier(2)  # without it the program hangs only now and then


def deposit():
    with checking:
        both.wait()
        with savings:
            print("deposited")


def withdraw():
    with savings:
        both.wait()
        with checking:
            print("withdrawn")


threading.Thread(target=deposit).start()
withdraw()
