import threading

ledger, journal = threading.Lock(), threading.Lock()
paid = threading.Event()


def pay():
    with ledger:
        with journal:
            pass
    paid.set()


def audit():
    paid.wait()
    with journal:
        with ledger:
            pass


threads = [threading.Thread(target=target) for target in (pay, audit)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
