"""Coding agents with their own command line: adapters, settings, and readers of output.

Claude Code, Codex, OpenCode, Gemini CLI, Cursor's agent, mini-swe-agent, and any other command
(`cmd: ARGV`). Every adapter allows every tool: the sandbox around the program is the protection.
"""

from __future__ import annotations

import json
import os
import re
import shlex

from culmen.core.errors import UserError
from culmen.core.foreign import boundary
from culmen.core.json import JsonObject
from culmen.extensions.agents.adapters import AgentJob, OnEvent, Pipes, Plan, programs
from culmen.extensions.agents.adapters.headless import (
    BOUND,
    HeadlessAdapter,
    HeadlessDialogue,
    StreamReading,
    number_at,
    objects_at,
    short_line,
    text_at,
    value_at,
)

# variable with the gateway's token, for programs with settings of their own
TOKEN_VARIABLE = "CULMEN_AGENT_TOKEN"
TOOLS_VARIABLE = "CULMEN_TOOLS"  # for any command: how it starts the MCP server of its tools
_SERVER = "tools"  # the name that programs give to that server
_TOOL_SECONDS = 600  # for one call of a tool


# Claude Code: `claude -p PROMPT --output-format stream-json`


_CLAUDE_SERVERS = "tools.mcp.json"


def _server_table(job: AgentJob, **more: object) -> str:
    """The MCP server of the job as JSON of the kind that Claude Code and Gemini CLI read."""
    server: JsonObject = {"command": job.tools[0], "args": list(job.tools[1:]), **more}
    return json.dumps({"mcpServers": {_SERVER: server}}, indent=1) + "\n"


_CLAUDE_LIMITS = {"error_max_budget_usd": "dollars", "error_max_turns": "calls"}


class ClaudeReading(StreamReading):
    """Reader of Claude Code's events.

    The exit code is 0 and the result "success" even if every tool call was refused.
    """

    def __init__(self, job: AgentJob, on_event: OnEvent) -> None:
        super().__init__(job, on_event)
        self._tools: set[str] = set()
        self._done: set[str] = set()

    def read_event(self, event: JsonObject) -> None:
        kind = text_at(event, "type")
        self.note_session(text_at(event, "session_id"))
        if kind == "assistant":
            self._read_assistant_message(event)
        elif kind == "user":
            for part in objects_at(event, "message", "content"):
                if (
                    text_at(part, "type") == "tool_result"
                    and value_at(part, "is_error") is not True
                ):
                    self._done.add(text_at(part, "tool_use_id"))
        elif kind == "result":
            self._read_result(event)
        elif kind == "system" and text_at(event, "subtype") == "api_retry":
            status = value_at(event, "error_status")
            self.note_failure(
                f"a model call failed ({status or text_at(event, 'error')}), attempt "
                f"{number_at(event, 'attempt'):g}"
            )

    def _read_assistant_message(self, event: JsonObject) -> None:
        for part in objects_at(event, "message", "content"):
            which = text_at(part, "type")
            if which == "text":
                self.note_message(text_at(part, "text"))
            elif which == "thinking":
                self.report_event("thought", text_at(part, "thinking"))
            elif which == "tool_use":
                self._tools.add(text_at(part, "id"))
                self.report_event(
                    "tool", f"{text_at(part, 'name')} {short_line(value_at(part, 'input'))}"
                )

    def _read_result(self, event: JsonObject) -> None:
        self.over, self.fault = True, ""
        subtype, message = text_at(event, "subtype"), text_at(event, "result")
        self.word = message.strip() or self.word
        usage = value_at(event, "usage")
        inputs = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
        self.add_claimed_usage(
            input_tokens=sum(number_at(usage, name) for name in inputs),
            output_tokens=number_at(usage, "output_tokens"),
            dollars=number_at(event, "total_cost_usd"),  # num_turns are not model calls
        )
        refused = [
            text_at(denial, "tool_name") for denial in objects_at(event, "permission_denials")
        ]
        for tool in refused:
            self.report_event("refused", tool)
        if subtype in _CLAUDE_LIMITS:
            self.ended, self.fault = _CLAUDE_LIMITS[subtype], subtype
        elif value_at(event, "is_error") is True or subtype not in ("", "success"):
            self.fault = message or short_line(value_at(event, "errors")) or subtype or "error"
        elif refused and not self._tools & self._done:
            self.fault = (
                f"its own permissions refused every tool call: {short_line(', '.join(refused))}"
            )


class ClaudeCode(HeadlessAdapter):
    """Claude Code: a running process takes no further message; a new one resumes the session."""

    name = program = "claude"
    wires = ("messages",)
    reading = ClaudeReading

    @staticmethod
    def files(job: AgentJob) -> dict[str, str]:
        return {_CLAUDE_SERVERS: _server_table(job)} if job.tools else {}

    def arguments(self, job: AgentJob, more: list[str]) -> list[str]:
        argv = ["-p", job.prompt, "--output-format", "stream-json", "--verbose"]
        servers = ["--mcp-config", f"{job.home}/{_CLAUDE_SERVERS}", "--strict-mcp-config"]
        argv += servers if job.tools else []
        return [*argv, "--dangerously-skip-permissions", *more]

    @staticmethod
    def environment(job: AgentJob) -> dict[str, str]:
        """Variables that direct Claude Code to the relay and switch off all other traffic.

        As root the program starts only if IS_SANDBOX is set.
        """
        relay = (
            {"ANTHROPIC_BASE_URL": job.base_url, "ANTHROPIC_API_KEY": job.token}
            if job.base_url
            else {}
        )
        models = ("ANTHROPIC_MODEL", "ANTHROPIC_DEFAULT_HAIKU_MODEL", "ANTHROPIC_SMALL_FAST_MODEL")
        return {
            **relay,
            **({name: job.model for name in models} if job.model else {}),
            "IS_SANDBOX": "1",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
        }


# Codex: `codex exec --json PROMPT`. It speaks only the responses interface.


class CodexReading(StreamReading):
    """Reader of Codex's events.

    Its usage counts the whole thread, so the claims of earlier processes are subtracted.
    """

    def read_event(self, event: JsonObject) -> None:
        kind = text_at(event, "type")
        self.note_session(text_at(event, "thread_id"))
        if kind in ("item.started", "item.completed"):
            self._read_item(kind, value_at(event, "item"))
        elif kind == "turn.completed":
            self.over, self.fault = True, ""
            for name in ("input_tokens", "output_tokens"):
                amount = number_at(event, "usage", name) - self.job.claimed.get(name, 0.0)
                self.claimed[name] = max(0.0, amount)
        elif kind in ("turn.failed", "error"):  # a retry may follow an error
            self.over = kind == "turn.failed"
            self.note_failure(
                text_at(event, "error", "message") or text_at(event, "message") or kind
            )

    def _read_item(self, kind: str, item: object) -> None:
        which, done = text_at(item, "type"), kind == "item.completed"
        if which == "agent_message" and done:
            self.note_message(text_at(item, "text"))
        elif which == "reasoning" and done:
            self.report_event("thought", text_at(item, "text"))
        elif which == "command_execution" and not done:
            self.report_event("tool", f"command {short_line(text_at(item, 'command'))}")
        elif which == "file_change" and done:
            self.report_event(
                "tool",
                "edit "
                + short_line(
                    ", ".join(text_at(change, "path") for change in objects_at(item, "changes"))
                ),
            )
        elif which in ("mcp_tool_call", "web_search") and not done:
            self.report_event(
                "tool", f"{which} {short_line(value_at(item, 'tool') or value_at(item, 'query'))}"
            )


class Codex(HeadlessAdapter):
    """Codex, started in the work tree, which need not be a git repository."""

    name = program = "codex"
    resume_words = ("resume",)
    wires = ("responses",)
    reading = CodexReading

    def arguments(self, job: AgentJob, more: list[str]) -> list[str]:
        argv = ["exec", "--json", "--skip-git-repo-check"]
        return [*argv, "--dangerously-bypass-approvals-and-sandbox", *more, job.prompt]

    @staticmethod
    def environment(job: AgentJob) -> dict[str, str]:
        """Folder of Codex's settings and sessions, and the token for the relay."""
        return {
            "CODEX_HOME": f"{job.home}/.codex",
            **({TOKEN_VARIABLE: job.token} if job.base_url else {}),
        }

    @staticmethod
    def files(job: AgentJob) -> dict[str, str]:
        """Codex settings: the relay as its model provider, no sandbox inside the host's sandbox."""
        lines = [
            "check_for_update_on_startup = false",
            'web_search = "disabled"',  # there is no network
            'approval_policy = "never"',
            'sandbox_mode = "danger-full-access"',
            *([f"model = {json.dumps(job.model)}"] if job.model else []),
            *(['model_provider = "culmen"'] if job.base_url else []),
            "",
            "[analytics]",
            "enabled = false",
        ]
        if job.base_url:
            lines += [
                "",
                "[model_providers.culmen]",
                'name = "culmen"',
                f"base_url = {json.dumps(job.base_url + '/v1')}",
                f"env_key = {json.dumps(TOKEN_VARIABLE)}",
                'wire_api = "responses"',
            ]
        if job.tools:
            lines += [
                "",
                f"[mcp_servers.{_SERVER}]",
                f"command = {json.dumps(job.tools[0])}",
                f"args = {json.dumps(list(job.tools[1:]))}",
                "startup_timeout_sec = 60",
                f"tool_timeout_sec = {_TOOL_SECONDS}",
            ]
        return {".codex/config.toml": "\n".join(lines) + "\n"}


# OpenCode: `opencode run --format json`, over chat completions


def _opencode_model(job: AgentJob) -> str:
    """Model name in OpenCode's form, provider/model."""
    return f"culmen/{job.model}" if job.base_url and job.model else job.model


class OpenCodeReading(StreamReading):
    """Reader of OpenCode's events, one per model call.

    The last call is the one that did not end in a tool call.
    """

    def read_event(self, event: JsonObject) -> None:
        kind = text_at(event, "type")
        self.note_session(text_at(event, "sessionID"))
        part = value_at(event, "part")
        if kind == "text":
            self.note_message(text_at(part, "text"))
        elif kind == "reasoning":
            self.report_event("thought", text_at(part, "text"))
        elif kind == "tool_use":
            self.report_event(
                "tool", f"{text_at(part, 'tool')} {short_line(value_at(part, 'state', 'input'))}"
            )
        elif kind == "step_finish":
            self.over, self.fault = text_at(part, "reason") not in ("tool-calls", "unknown"), ""
            tokens = value_at(part, "tokens")
            cached = number_at(tokens, "cache", "read") + number_at(tokens, "cache", "write")
            self.add_claimed_usage(
                calls=1,
                input_tokens=number_at(tokens, "input") + cached,
                output_tokens=number_at(tokens, "output") + number_at(tokens, "reasoning"),
                dollars=number_at(part, "cost"),
            )
        elif kind == "error":
            self.note_failure(
                text_at(event, "error", "data", "message")
                or text_at(event, "error", "name")
                or "error"
            )


class OpenCode(HeadlessAdapter):
    """OpenCode; the prompt goes through standard input.

    It puts quotation marks around arguments of the command line, and the model would see them.
    """

    name = program = "opencode"
    resume_words, stdin = ("--session",), True
    wires = ("chat",)

    def model_name(self, job: AgentJob) -> str:
        return _opencode_model(job)

    def arguments(self, job: AgentJob, more: list[str]) -> list[str]:
        return ["run", "--format", "json", *more]

    def open_dialogue(self, pipes: Pipes, job: AgentJob, on_event: OnEvent) -> HeadlessDialogue:
        return HeadlessDialogue(pipes, OpenCodeReading(job, on_event), feed=job.prompt)

    @staticmethod
    def environment(job: AgentJob) -> dict[str, str]:
        """The token for the relay, and variables that switch off OpenCode's own downloads."""
        names = ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS", "SHARE")
        off = {f"OPENCODE_DISABLE_{name}": "1" for name in names}
        return {**off, **({TOKEN_VARIABLE: job.token} if job.base_url else {})}

    @staticmethod
    def files(job: AgentJob) -> dict[str, str]:
        """OpenCode settings: the relay as a provider with one model, every tool allowed.

        Raises UserError without a model.
        """
        settings: JsonObject = {
            "permission": {"*": "allow"},
            "autoupdate": False,
            "share": "disabled",
            "snapshot": False,
            "lsp": False,
            "formatter": False,
            # else it asks the model for a title, in a call that it does not count
            "agent": {"title": {"disable": True}},
        }
        if job.tools:
            server: JsonObject = {"type": "local", "command": list(job.tools), "enabled": True}
            settings["mcp"] = {_SERVER: server | {"timeout": 1000 * _TOOL_SECONDS}}
        if job.base_url:
            if not job.model:
                raise UserError(
                    "OpenCode needs the name of a model",
                    where="--agent opencode",
                    fix="--model MODEL",
                )
            settings |= {
                "model": _opencode_model(job),
                "small_model": _opencode_model(job),
                "enabled_providers": ["culmen"],
                "provider": {
                    "culmen": {
                        "npm": "@ai-sdk/openai-compatible",
                        "name": "culmen",
                        "options": {
                            "baseURL": f"{job.base_url}/v1",
                            "apiKey": f"{{env:{TOKEN_VARIABLE}}}",
                        },
                        "models": {job.model: {"name": job.model, "tool_call": True}},
                    }
                },
            }
        return {".config/opencode/opencode.json": json.dumps(settings, indent=1) + "\n"}


# Gemini CLI: `gemini -p PROMPT -o stream-json`


class GeminiReading(StreamReading):
    """Reader of Gemini CLI's events; a message's text comes in pieces."""

    _pieces = ""

    def read_event(self, event: JsonObject) -> None:
        kind = text_at(event, "type")
        self.note_session(text_at(event, "session_id"))
        if kind == "message" and text_at(event, "role") == "assistant":
            complete = value_at(event, "delta") is not True
            self._pieces = (("" if complete else self._pieces) + text_at(event, "content"))[-BOUND:]
            return
        self._flush_message()
        if kind == "tool_use":
            self.report_event(
                "tool", f"{text_at(event, 'tool_name')} {short_line(value_at(event, 'parameters'))}"
            )
        elif kind == "error" and text_at(event, "severity") != "warning":
            self.note_failure(text_at(event, "message"))
        elif kind == "result":
            self._read_result(event)

    def _flush_message(self) -> None:
        pieces, self._pieces = self._pieces, ""
        self.note_message(pieces)

    def _read_result(self, event: JsonObject) -> None:
        self.over = True
        stats = value_at(event, "stats")
        given = number_at(stats, "input_tokens")
        self.add_claimed_usage(
            input_tokens=given,
            # the total has the thoughts, which output_tokens leaves out
            output_tokens=max(
                number_at(stats, "output_tokens"), number_at(stats, "total_tokens") - given
            ),
        )
        if text_at(event, "status") == "success":
            self.fault = ""
        else:
            self.fault = text_at(event, "error", "message") or self.fault or "error"

    def on_exit(self, code: int | None) -> None:
        self._flush_message()


class GeminiCli(HeadlessAdapter):
    """Gemini CLI, with every tool allowed and the work tree trusted."""

    name = program = "gemini"
    model_words = ("-m",)
    wires = ("gemini",)
    reading = GeminiReading

    def arguments(self, job: AgentJob, more: list[str]) -> list[str]:
        return ["-p", job.prompt, "--yolo", "--skip-trust", "-o", "stream-json", *more]

    @staticmethod
    def environment(job: AgentJob) -> dict[str, str]:
        """Variables that direct Gemini CLI to the relay."""
        return (
            {"GEMINI_API_KEY": job.token, "GOOGLE_GEMINI_BASE_URL": job.base_url}
            if job.base_url
            else {}
        )

    @staticmethod
    def files(job: AgentJob) -> dict[str, str]:
        """Gemini CLI settings: a key instead of a login, no updates, no usage statistics."""
        settings = {
            "security": {"auth": {"selectedType": "gemini-api-key"}},
            "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
            "privacy": {"usageStatisticsEnabled": False},
            "telemetry": {"enabled": False},
        }
        if job.tools:
            settings |= json.loads(_server_table(job, trust=True, timeout=1000 * _TOOL_SECONDS))
        return {".gemini/settings.json": json.dumps(settings, indent=1) + "\n"}


# Cursor's agent: `cursor-agent -p PROMPT --output-format stream-json --force`


class CursorReading(StreamReading):
    """Reader of Cursor's events: Claude Code's shape, with separate events for tool calls."""

    def read_event(self, event: JsonObject) -> None:
        kind = text_at(event, "type")
        self.note_session(text_at(event, "session_id"))
        if kind == "assistant":
            self.note_message(
                "".join(text_at(part, "text") for part in objects_at(event, "message", "content"))
            )
        elif kind == "thinking":
            self.report_event("thought", text_at(event, "text"))
        elif kind == "tool_call" and text_at(event, "subtype") == "started":
            call = value_at(event, "tool_call")
            name = next(iter(call), "") if isinstance(call, dict) else ""
            self.report_event("tool", f"{name} {short_line(value_at(call, name, 'args'))}")
        elif kind == "result":
            self.over = True
            self.word = text_at(event, "result").strip()[-4000:] or self.word
            usage = value_at(event, "usage")
            self.add_claimed_usage(
                input_tokens=number_at(usage, "inputTokens"),
                output_tokens=number_at(usage, "outputTokens"),
            )
            if value_at(event, "is_error") is True:
                self.fault = self.word or text_at(event, "subtype")


class Cursor(HeadlessAdapter):
    """Cursor's agent, unmetered.

    It logs in at its maker's server and accepts no other address, so its calls cannot be metered
    and it needs the internet. Written from its documentation; not run against the real program.
    """

    name, program = "cursor", "cursor-agent"
    metered = tools = False
    reading = CursorReading

    def arguments(self, job: AgentJob, more: list[str]) -> list[str]:
        argv = ["-p", "--output-format", "stream-json", "--force", "--workspace", job.tree]
        return [*argv, *more, job.prompt]

    @staticmethod
    def environment(job: AgentJob) -> dict[str, str]:
        """The user's own Cursor key, which no other agent receives."""
        key = "CURSOR_API_KEY"
        return {key: os.environ[key]} if os.environ.get(key) else {}


# Programs that print for people


_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f]")
_PLACEHOLDERS = ("prompt", "prompt_file", "model", "base_url", "token", "tree", "home", "skill")


def relay_environment(job: AgentJob) -> dict[str, str]:
    """The relay's address and token under all variables that programs commonly read."""
    if not job.base_url:
        return {}
    return {
        "OPENAI_BASE_URL": f"{job.base_url}/v1",
        "OPENAI_API_BASE": f"{job.base_url}/v1",
        "OPENAI_API_KEY": job.token,
        "ANTHROPIC_BASE_URL": job.base_url,
        "ANTHROPIC_API_KEY": job.token,
        "GOOGLE_GEMINI_BASE_URL": job.base_url,
        "GEMINI_API_KEY": job.token,
    }


class PlainReading(StreamReading):
    """Reader of plain output: every line is a text; exit code 0 is success."""

    @boundary()
    def _read_line(self, line: bytes) -> None:
        words = _ESCAPES.sub("", line.decode("utf-8", "replace"))
        self.read_text_line(words) if words.strip() else self.report_event("life")

    def read_text_line(self, words: str) -> None:
        """Read a line that is not empty."""
        self.note_message(words)

    def on_exit(self, code: int | None) -> None:
        self.over = code == 0


def command_words(command: str, way: str) -> list[str]:
    """The words of an agent's command line after `acp:` or `cmd:`; UserError if there are none."""
    where = f"--agent '{way}:{command}'"
    try:
        words = shlex.split(command)
    except ValueError as error:
        what = f"this command line cannot be read: {error}"
        raise UserError(what, where=where, fix="close each quotation mark of it") from None
    if not words:
        fix = f"--agent '{way}: my-agent', or a name that culmen doctor lists"
        raise UserError("no agent is named", where=where, fix=fix)
    return words


class AnyCommand(HeadlessAdapter):
    """Any program: `cmd: my-agent --task {prompt_file} --model {model}`.

    Places in braces are filled in. The program finds the relay in `{base_url}` and in the usual
    variables (`relay_environment`), and the prompt as its last argument if no place takes it. It
    runs in the work tree; files that the command line names by absolute path are visible to it. The
    command of an MCP server of tools is in `{tools}` and in the variable `TOOLS_VARIABLE`.
    """

    resumes = False
    wires = ("chat", "responses", "messages", "gemini")
    reading = PlainReading
    environment = staticmethod(relay_environment)

    def __init__(self, template: str) -> None:
        self.name, self._words = f"cmd:{template}", command_words(template, "cmd")
        if not {"{prompt}", "{prompt_file}"} & set(re.findall(r"\{\w+\}", template)):
            self._words.append("{prompt}")
        self.program = self._words[0]

    def plan(self, job: AgentJob) -> Plan:
        installed = programs.find_program(
            self.program, fix="name a program that is installed, or its path"
        )
        values = {name: getattr(job, name, "") for name in _PLACEHOLDERS} | {
            "prompt_file": f"{job.home}/prompt.md",
            "tools": shlex.join(job.tools),
        }
        placeholders = re.compile(r"\{(" + "|".join(values) + r")\}")
        words = [placeholders.sub(lambda match: values[match[1]], word) for word in self._words[1:]]
        visible = (*installed.visible, *programs.mentioned_paths(self._words[1:]))
        files = {"prompt.md": job.prompt + "\n"}
        environment = self.environment(job)
        environment |= {TOOLS_VARIABLE: values["tools"]} if job.tools else {}
        return Plan((*installed.command, *words), environment, installed.path, files, visible)


class MiniReading(PlainReading):
    """Reader of mini-swe-agent's output, a conversation printed for people.

    The model's messages stand below a heading of their own. The exit code is 0 even if the program
    has given up; the reason then stands below the last heading.
    """

    _part = _message = ""

    def read_text_line(self, words: str) -> None:
        words = words.strip()
        self.report_event("life")
        if re.match(r"mini-swe-agent \(step \d+", words):
            self._part, self._message = "model", ""
        elif words.startswith(("```", "Tool:", "User:", "Exit:", "\u2500\u2500\u2500")):
            self._part = "exit" if words.startswith("Exit:") else ""
        elif self._part == "model":
            self._message = f"{self._message}\n{words}".strip()[-BOUND:]
            self.word = self._message
            self.report_event("text", words)
        elif self._part == "exit" and re.fullmatch(r"[A-Z]\w*(Error|Exceeded|Interruption)", words):
            self.fault = words


class Mini(HeadlessAdapter):
    """mini-swe-agent, without its set-up dialogue and its own prices.

    Version 2.4.6 from PyPI fails at every tool call because it lacks the package `mcp`.
    """

    name = program = "mini"
    resumes = tools = False
    model_words = ("-m",)
    wires = ("chat",)
    reading = MiniReading

    def arguments(self, job: AgentJob, more: list[str]) -> list[str]:
        argv = ["-y", "--exit-immediately", "-o", f"{job.home}/trajectory.json"]
        return [*argv, *more, "-t", job.prompt]

    def model_name(self, job: AgentJob) -> str:
        return f"openai/{job.model}" if job.model else ""

    @staticmethod
    def environment(job: AgentJob) -> dict[str, str]:
        return {
            **relay_environment(job),
            "MSWEA_CONFIGURED": "true",
            "MSWEA_COST_TRACKING": "ignore_errors",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        }
