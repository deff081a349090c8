"""Lock orders of released packages that differ, each known from a public report of a hang. By itself the program ends.

packages.py PACKAGE

The calls are those of the reports, made by two threads at different times. No network is needed.
"""

import contextlib
import logging
import logging.config
import os
import select
import socket
import sys
import threading

PACKAGE = sys.argv[1]
print("can hang", flush=True)
# A pipe, which is no lock, shows a thread its turn.
reading, writing = os.pipe()


def paho():
    """paho-mqtt 1.4.0: `publish` takes the lock of messages, then that of callbacks; a callback that publishes the other way."""
    from paho.mqtt import client as mqtt
    client = mqtt.Client("bank")
    client._sock, _peer = socket.socketpair()
    client._thread = threading.current_thread()
    client.on_message = lambda client, *_: client.publish("copy", b"x", qos=1)

    def publish():
        client.publish("topic", b"x", qos=1)

    def receive():
        client._registered_write = False
        client._handle_on_message(mqtt.MQTTMessage(1, b"topic"))

    return publish, receive


def kafka():
    """kafka-python 1.4.3: joining a group takes the coordinator's lock, then the client's; closing it the other way."""
    from kafka.client_async import KafkaClient
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.coordinator.consumer import ConsumerCoordinator
    from kafka.consumer.subscription_state import SubscriptionState
    from kafka.metrics import Metrics
    client = KafkaClient(bootstrap_servers=[], api_version=(0, 10))
    coordinator = ConsumerCoordinator(client, SubscriptionState(), Metrics(), group_id="bank", api_version=(0, 10),
                                      assignors=[RoundRobinPartitionAssignor], session_timeout_ms=10000, max_poll_interval_ms=10000)
    coordinator.coordinator_unknown = lambda: False
    coordinator._start_heartbeat_thread = lambda: None

    def stop(*_):
        # There is no broker: both locks have been taken by then.
        raise InterruptedError

    coordinator._on_join_prepare = stop
    coordinator.rejoin_needed, coordinator.rejoining = True, False
    coordinator.need_rejoin = lambda: True

    def join():
        with contextlib.suppress(InterruptedError):
            coordinator.ensure_active_group()

    return join, coordinator.maybe_leave_group


def opentelemetry():
    """opentelemetry-sdk 1.33.1: flushing a handler takes its lock, then that of the export; an exporter that logs the other way."""
    from opentelemetry.sdk._logs import LoggerProvider, LoggingHandler
    from opentelemetry.sdk._logs.export import BatchLogRecordProcessor, LogExporter, LogExportResult
    log = logging.getLogger("exporter")

    class Exporter(LogExporter):
        has_logged = False

        def export(self, batch):
            if threading.current_thread().name == "second" and not self.has_logged:
                self.has_logged = True
                log.warning("sent")
            return LogExportResult.SUCCESS

        def shutdown(self):
            pass

    provider = LoggerProvider(shutdown_on_exit=False)
    processor = BatchLogRecordProcessor(Exporter(), schedule_delay_millis=3600000)
    provider.add_log_record_processor(processor)
    handler = LoggingHandler(logger_provider=provider)
    log.addHandler(handler)
    other = logging.getLogger("application")
    other.addHandler(handler)
    other.propagate = log.propagate = False
    other.warning("first")

    def flush():
        handler.acquire()
        try:
            handler.flush()
        finally:
            handler.release()

    def export():
        processor.emit(None)
        processor.force_flush()

    return flush, export


def apscheduler():
    """APScheduler 3.5.0: `shutdown` waits for its workers under the lock that a job takes to add another job."""
    from apscheduler.schedulers.background import BackgroundScheduler
    scheduler = BackgroundScheduler(timezone="UTC")
    scheduler.start()

    done, end = os.pipe()

    def job():
        scheduler.add_job(len, "date", args=["x"], run_date="2999-01-01")
        os.write(end, b"x")

    def shut_down():
        select.select([done], [], [], 1)
        scheduler.shutdown()

    return lambda: scheduler.add_job(job), shut_down


def of_logging():
    """CPython's logging, python/cpython#84551: `shutdown` and `dictConfig` take the lock of the module and of a handler."""
    handlers = {"version": 1, "handlers": {"h": {"class": "logging.StreamHandler"}}, "root": {"handlers": ["h"]}}
    logging.config.dictConfig(handlers)
    return logging.shutdown, lambda: logging.config.dictConfig(handlers)


first, second = {"logging": of_logging}.get(PACKAGE, globals().get(PACKAGE))()


def begins():
    first()
    os.write(writing, b"x")


def follows():
    select.select([reading], [], [], 0.06)
    second()


threads = [threading.Thread(target=begins, name="first"), threading.Thread(target=follows, name="second")]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
