"""Who is asked for which GPUs: real exporters' ports, and a library that we wrote."""

import asyncio
import threading
from collections.abc import Mapping

import pytest
from app.scripted import Threaded

from serve.app.autoscaler import Gpus
from serve.core.replicas import Replica
from serve.triton.gpus.readings import Gpu
from serve.triton.metrics import ReplicaScrape, read

HERE = Replica("local-0", "127.0.0.1", 1, 2, 3)
ELSEWHERE = Replica("triton-0", "triton-0.triton.serving", 1, 2, 3)
DISCOVERED = Replica("triton-0", "10.0.0.7", 1, 2, 3)
UNREAD = 'nv_gpu_utilization{gpu_uuid="GPU-1"} 0\nnv_gpu_memory_total_bytes{gpu_uuid="GPU-1"} 0\n'
BUSY = 'nv_gpu_utilization{gpu_uuid="GPU-1"} 0.5\n'
DCGM = """\
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-1",device="nvidia0",pod="triton-0"} 40
DCGM_FI_PROF_SM_ACTIVE{gpu="0",UUID="GPU-1",device="nvidia0",pod="triton-0"} 0.250000
DCGM_FI_DEV_GPU_UTIL{gpu="1",UUID="GPU-2",device="nvidia1",pod="another"} 90
"""


@pytest.fixture
def exporter(threaded: Threaded) -> Threaded:
    threaded.text = DCGM
    return threaded


class Library:
    """What NVML tells of this machine; `asked` counts."""

    def __init__(self, gpus: Mapping[str, Gpu]) -> None:
        self._gpus = gpus
        self.asked = 0

    def __call__(self) -> Mapping[str, Gpu]:
        self.asked += 1
        return self._gpus


def nowhere(replica: Replica) -> str:
    return ""


def told(gpus: Gpus, replica: Replica, readings: ReplicaScrape | None) -> dict[str, Gpu]:
    answer = asyncio.run(gpus.gpus_of(replica, readings))
    return {uuid: Gpu(**one) for uuid, one in answer.items()}


DCGM_OF_ITS_POD = {"GPU-1": Gpu("dcgm", 0.4, sm_active=0.25)}


def test_the_exporter_adds_what_triton_does_not_tell(exporter: Threaded) -> None:
    gpus = Gpus(lambda _: exporter.url, nvml=Library({}))
    assert told(gpus, HERE, read(BUSY)) == {"GPU-1": Gpu("triton+dcgm", 0.5, sm_active=0.25)}
    assert told(gpus, ELSEWHERE, read("")) == DCGM_OF_ITS_POD  # which is known by its host
    assert told(gpus, DISCOVERED, read("")) == DCGM_OF_ITS_POD  # and here by its name
    every = DCGM_OF_ITS_POD | {"GPU-2": Gpu("dcgm", 0.9)}
    assert told(gpus, HERE, None) == every  # where no pod is known


def test_an_exporter_that_tells_nothing_or_is_not_there_takes_nothing_away(
    exporter: Threaded,
) -> None:
    gpus = Gpus(lambda _: exporter.url, nvml=Library({}))
    for exporter.status, exporter.text in ((404, ""), (200, "<html>"), (200, "")):
        assert told(gpus, HERE, read(BUSY)) == {"GPU-1": Gpu("triton", 0.5)}
    exporter.socket.close()
    assert told(gpus, ELSEWHERE, read(BUSY)) == {"GPU-1": Gpu("triton", 0.5)}


def test_nvml_is_asked_for_a_triton_of_this_machine_that_does_not_tell_of_each_gpu() -> None:
    gpus = Gpus(nowhere, nvml=Library({"GPU-1": Gpu("nvml", 0.7), "GPU-2": Gpu("nvml", 0.1)}))
    assert told(gpus, HERE, read(UNREAD)) == {"GPU-1": Gpu("triton+nvml", 0.7)}
    idle = 'nv_gpu_utilization{gpu_uuid="GPU-2"} 0\n'
    expected = {"GPU-1": Gpu("triton", 0.5), "GPU-2": Gpu("triton+nvml", 0.1)}
    assert told(gpus, HERE, read(BUSY + idle)) == expected


def test_nvml_is_not_asked_where_triton_tells_or_is_elsewhere() -> None:
    library = Library({"GPU-1": Gpu("nvml", 0.7)})
    assert told(Gpus(nowhere, nvml=library), HERE, read(BUSY)) == {"GPU-1": Gpu("triton", 0.5)}
    assert told(Gpus(nowhere, nvml=library), ELSEWHERE, read("")) == {}
    assert library.asked == 0


def test_nvml_is_not_asked_where_the_exporter_tells_slices(exporter: Threaded) -> None:
    exporter.text = (
        'DCGM_FI_PROF_SM_ACTIVE{gpu="0",UUID="GPU-1",GPU_I_PROFILE="2g.10gb",GPU_I_ID="5"} 0.5\n'
    )
    library = Library({"GPU-1": Gpu("nvml", 0.7)})
    found = told(Gpus(lambda _: exporter.url, nvml=library), HERE, read(UNREAD))
    assert found["GPU-1/5"] == Gpu("dcgm", sm_active=0.5, mig="2g.10gb")
    assert found["GPU-1"] == Gpu("triton", mig="enabled")
    assert library.asked == 0


def test_a_gpu_that_was_busy_may_be_idle_after_that_until_its_triton_is_another() -> None:
    gpus, idle = Gpus(nowhere, nvml=Library({})), read(BUSY.replace("0.5", "0"))
    found = [
        told(gpus, ELSEWHERE, readings)["GPU-1"].utilization if readings else None
        for readings in (idle, read(BUSY), idle)
    ]
    assert found == [None, 0.5, 0.0]
    assert told(gpus, ELSEWHERE, None) == {}
    assert told(gpus, ELSEWHERE, idle)["GPU-1"].utilization is None


def test_all_who_ask_nvml_meanwhile_get_the_same_answer() -> None:
    library = Library({"GPU-1": Gpu("nvml", 0.7)})
    gpus = Gpus(nowhere, nvml=library)

    async def both() -> list[Mapping[str, Mapping[str, object]]]:
        return list(await asyncio.gather(gpus.gpus_of(HERE, None), gpus.gpus_of(HERE, None)))

    first, second = asyncio.run(both())
    assert first == second
    assert library.asked == 1


def test_nvml_that_does_not_answer_is_not_asked_again_before_it_does() -> None:
    answers, asked = threading.Event(), []

    def hangs() -> Mapping[str, Gpu]:
        asked.append(1)
        answers.wait(30)
        return {"GPU-1": Gpu("nvml", 0.7)}

    async def scene() -> list[int]:
        gpus = Gpus(nowhere, nvml=hangs, patience=0.01)
        found = [len(await gpus.gpus_of(HERE, None)) for _ in range(3)]
        answers.set()
        return found

    assert asyncio.run(scene()) == [0, 0, 0]
    assert asked == [1]
