"""A sidecar without machines or models, for tests of the Ollama fork: it speaks sidecar.proto and answers itself.

`python echo_sidecar.py --socket PATH --data DIR`. What it says depends on the last message: "slow" never ends, "refuse"
is refused, "shout" with what commands a terminal, "break" fails in the middle, "calls" calls a tool, "same" repeats one
word, anything else comes back word by word. Each end of a sequence is appended to DIR/sequences as "done" or
"cancelled". A session of the model "test/never" stays forming; in one of "test/terminal" everybody shouts. The planner
is the real one, asked about three machines: for "test/large" they are too small.
"""

import argparse
import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc

import kafila_planner
from kafila_proto import sidecar_pb2 as pb
from kafila_proto import sidecar_pb2_grpc as rpc

START, END = "\x02kafila1 ", "\x03"
SHOUT = "\x1b[2J\x1b[H\x1b]0;owned\x07\nReady. Chat with: ollama run evil\r\u202e\x9b31m\u200b"


class EchoSidecar(rpc.SidecarServicer):
    """Holds the sessions that were created or joined; each becomes ready a moment later."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.sessions: dict[str, pb.Session] = {}
        self.changed = asyncio.Condition()
        self.tasks: set[asyncio.Task[None]] = set()

    async def Hello(self, request: pb.HelloRequest, context: object) -> pb.HelloReply:
        return pb.HelloReply(version="echo", pid=os.getpid(), device="cpu", usable_memory_bytes=8 * 10**9)

    async def CreateSession(self, request: pb.CreateSessionRequest, context: grpc.aio.ServicerContext) -> pb.Session:
        if request.model == "nobody/has-this":
            await context.abort(grpc.StatusCode.NOT_FOUND, "the model host has no nobody/has-this: check its name")
        session = pb.Session(
            id=f"s{len(self.sessions) + 1}",
            code=f"{len(self.sessions) + 1}-ocean-velvet-lamp",
            state="forming",
            doing="waiting for 1 more member",
            model=request.model,
            self="here",
            host="here",
            members_wanted=request.members,
            context_tokens=request.context_tokens or 4096,
            concurrency=request.concurrency or 1,
            joining="open",
            members=[
                pb.Member(name="here", role="host", present=True, doing="ready"),
                *(pb.Member(name=f"guest{number}") for number in range(2, request.members + 1)),
            ],
        )
        if request.model == "test/terminal":
            session.doing, session.rendezvous_note, session.better_plan = SHOUT, SHOUT, SHOUT
            session.members.add(name="mini" + SHOUT, role=SHOUT, present=True, doing=SHOUT, device=SHOUT)
        return self.open(session)

    async def OpenSession(self, request: pb.OpenSessionRequest, context: grpc.aio.ServicerContext) -> pb.Offer:
        if not request.code.endswith("-ocean-velvet-lamp"):
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "the code is wrong: ask for it again")
        joined = any(session.code == request.code for session in self.sessions.values())
        return pb.Offer(
            session="s" + request.code.split("-")[0],
            joined=joined,
            model="test/echo",
            host="there",
            members_present=1,
            members_wanted=2,
            lend_memory_bytes=4 * 10**9,
            download_bytes=3 * 10**8,
            free_disk_bytes=10**11,
            folder=str(self.data),
        )

    async def JoinSession(self, request: pb.JoinSessionRequest, context: object) -> pb.Session:
        session = pb.Session(
            id=request.session,
            state="forming",
            doing="measuring",
            model="test/echo",
            self="here",
            host="there",
            concurrency=2,
            context_tokens=4096,
            members=[pb.Member(name="there", role="host", present=True), pb.Member(name="here", present=True)],
        )
        return self.open(session)

    async def StartSession(self, request: pb.SessionRequest, context: grpc.aio.ServicerContext) -> pb.Session:
        return await self.find(request.session, context)

    async def NewCode(self, request: pb.SessionRequest, context: grpc.aio.ServicerContext) -> pb.Session:
        session = await self.find(request.session, context)
        await self.hosted(session, context)
        return self.renew(session)

    async def Lock(self, request: pb.LockRequest, context: grpc.aio.ServicerContext) -> pb.Session:
        session = await self.find(request.session, context)
        await self.hosted(session, context)
        session.joining = "locked" if request.locked else "open"
        return session

    async def Kick(self, request: pb.KickRequest, context: grpc.aio.ServicerContext) -> pb.Session:
        session = await self.find(request.session, context)
        await self.hosted(session, context)
        kept = [member for member in session.members if member.name != request.member]
        if len(kept) == len(session.members):
            await context.abort(grpc.StatusCode.NOT_FOUND, f"{request.member!r} is not a member of this session")
        del session.members[:]
        session.members.extend(kept)
        return self.renew(session)

    async def LeaveSession(self, request: pb.SessionRequest, context: grpc.aio.ServicerContext) -> pb.LeaveSessionReply:
        session = await self.find(request.session, context)
        await self.change(session, state="closed")
        return pb.LeaveSessionReply()

    async def ListSessions(self, request: pb.ListSessionsRequest, context: object) -> pb.ListSessionsReply:
        return pb.ListSessionsReply(sessions=self.sessions.values())

    async def WatchSession(
        self, request: pb.SessionRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.Session]:
        session = await self.find(request.session, context)
        while True:
            yield session
            if session.state == "closed":
                return
            async with self.changed:
                await self.changed.wait()

    async def Plan(self, request: pb.PlanRequest, context: object) -> pb.PlanReply:
        problem = three_machines(large=request.model == "test/large")
        plan = planned(problem)
        return pb.PlanReply(
            plan_json=json.dumps(plan),
            problem_json=json.dumps(problem),
            alternatives_json={
                objective: json.dumps(planned(problem | {"objective": objective}))
                for objective in ("paper", "latency", "throughput")
            },
            download_bytes={stage["member"]: 10**9 for stage in plan.get("stages", [])},
        )

    async def Doctor(self, request: pb.DoctorRequest, context: grpc.aio.ServicerContext) -> pb.DoctorReply:
        if request.rendezvous == "nowhere":
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "nowhere is no address: write host:port")
        finding = pb.Finding(topic="UDP", level="problem", sentence="is blocked here")
        return pb.DoctorReply(text="! UDP  is blocked here\n", findings=[finding], udp="blocked")

    async def Generate(
        self, request: pb.GenerateRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.GenerateReply]:
        if request.session not in self.sessions:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"there is no session {request.session} here any more")
        ended, session = "cancelled", self.sessions[request.session]
        await self.change(session, active=1)
        try:
            async for reply in self.answer(request, context):
                yield reply
            ended = "done"
        finally:
            with (self.data / "sequences").open("a") as log:
                log.write(ended + "\n")
            await asyncio.shield(self.change(session, active=-1))

    async def answer(
        self, request: pb.GenerateRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.GenerateReply]:
        framed = request.prompt.startswith(START)
        said = request.prompt
        if framed:
            said = json.loads(request.prompt[len(START) : -len(END)])["messages"][-1]["content"]
        if said == "refuse":
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the input length exceeds the context length")
        if said == "shout":
            await context.abort(grpc.StatusCode.UNAVAILABLE, SHOUT)
        for number, piece in enumerate(pieces(said)):
            text = piece if isinstance(piece, str) else ""
            if framed:
                body = {"c": piece} if isinstance(piece, str) else {"call": piece}
                text = "\x1e" + json.dumps({"n": number, **body})
            yield pb.GenerateReply(text=text)
            await asyncio.sleep(0.02 if said != "same" else 0)
            if said == "break" and number == 2:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "member mini was lost: ask again")
        if said == "slow":
            await asyncio.Event().wait()
        yield pb.GenerateReply(done=True, prompt_tokens=len(said), prompt_s=0.1, output_tokens=5, output_s=0.2)

    def open(self, session: pb.Session) -> pb.Session:
        self.sessions[session.id] = session
        task = asyncio.create_task(self.become_ready(session))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return session

    async def become_ready(self, session: pb.Session) -> None:
        await (asyncio.sleep(0.2) if session.model != "test/never" else asyncio.Event().wait())
        session.stages.add(member="here", start=0, end=30, head=True, resident_bytes=3 * 10**8, predicted_s=0.02)
        session.vehicle.CopyFrom(
            pb.StubModel(
                name=f"kafila/session/echo:{session.id}",
                architecture="llama",
                context_length=session.context_tokens,
                embedding_length=576,
                parameter_count=134_515_008,
                quantization="F32",
                parser="kafila-tools",
                parameters={"temperature": 0.2, "top_k": 20},
            )
        )
        await self.change(session, state="ready")

    async def change(self, session: pb.Session, *, state: str = "", active: int = 0) -> None:
        if state:
            session.state, session.doing = state, ""
        session.active_sequences += active
        async with self.changed:
            self.changed.notify_all()

    async def hosted(self, session: pb.Session, context: grpc.aio.ServicerContext) -> None:
        if session.host != session.self:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"only the host, {session.host}, can do that")

    def renew(self, session: pb.Session) -> pb.Session:
        """Another code with the same number; joining is open again."""
        session.code, session.joining = session.code.split("-")[0] + "-brass-kite-lamp", "open"
        return session

    async def find(self, name: str, context: grpc.aio.ServicerContext) -> pb.Session:
        for session in self.sessions.values():
            if name in (session.id, session.code, session.code.split("-")[0]):
                return session
        await context.abort(grpc.StatusCode.NOT_FOUND, f"there is no session {name} on this machine")
        raise AssertionError


def three_machines(*, large: bool) -> dict[str, Any]:
    """A problem for the planner: a quick machine, one that helps, and one that slows the others down."""
    model = {"blocks": 36, "block_bytes": 385_892_864, "kv_bytes_per_token_per_block": 4096, "tied": False}
    sizes = {"embed_bytes": 1_244_659_712, "unembed_bytes": 1_244_659_712, "norm_bytes": 8192}
    memory_bytes = 2 * 10**9 if large else 12 * 10**9
    members = [
        {"name": "desk", "nat": "ordinary", "rtt_s": 0.02, "bandwidth_bytes_per_s": 4e11},
        {"name": "here", "nat": "ordinary", "rtt_s": 0.03, "bandwidth_bytes_per_s": 1e11},
        {"name": "slow", "nat": "restrictive", "rtt_s": 0.3, "bandwidth_bytes_per_s": 1e10},
    ]
    return {
        "model": model | sizes,
        "context_tokens": 4096,
        "concurrency": 2,
        "anchor": "here",
        "members": [member | {"overhead_s": 5e-5, "memory_bytes": memory_bytes} for member in members],
    }


def planned(problem: dict[str, Any]) -> dict[str, Any]:
    return kafila_planner.plan_to_json(kafila_planner.make_plan(kafila_planner.problem_from_json(problem)))


def pieces(said: str) -> list[str | dict[str, object]]:
    """What to answer, chunk by chunk; a tool call is a dict."""
    if said == "calls":
        return [{"name": "weather", "arguments": {"city": "Paris"}}, {"name": "weather", "arguments": {"city": "Rome"}}]
    if said == "same":
        return ["ha "] * 100
    return [word + " " for word in said.split()] if said != "break" else ["one ", "two ", "three ", "never"]


async def serve(socket: str, data: Path) -> None:
    server = grpc.aio.server()
    rpc.add_SidecarServicer_to_server(EchoSidecar(data), server)  # type: ignore[no-untyped-call]
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.buffer.read)
    await server.stop(0)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--socket", required=True)
    parser.add_argument("--data", required=True, type=Path)
    args = parser.parse_args()
    args.data.mkdir(parents=True, exist_ok=True)
    os.umask(0o177)
    asyncio.run(serve(args.socket, args.data))


if __name__ == "__main__":
    main()
