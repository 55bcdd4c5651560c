// Jobs: which of my million jobs? Pages come from the server, newest first; jumps are by time, and counts are the
// server's.

import {useEffect, useRef, useState} from "./vendor/hooks.js"
import {now, own, useAnswer} from "./api.js"
import {Bar, Empty, Job, Panel, Problem, State, Table, text, html, useWidth} from "./parts.js"
import {route, setQuery} from "./route.js"
import {STATES, clock, count, endWords, num, quoted, span} from "./words.js"

const PAGE = 100,
	MOST = 600
const SPANS = {"1 h": 36e5, "1 d": 864e5, "7 d": 6048e5, "30 d": 2592e6}
const list = text => (text ? text.split(",") : [])

const asked = q => ({
	queue: q.queue || undefined,
	states: q.states ? list(q.states) : undefined,
	name: q.name?.trim() || undefined,
	sinceAt: Number(q.since) || undefined,
	untilAt: Number(q.until) || undefined,
	limit: PAGE,
})

export function Progress({summary, size}) {
	const done = summary.SUCCEEDED ?? 0,
		failed = summary.FAILED ?? 0,
		running = (summary.RUNNING ?? 0) + (summary.STARTING ?? 0)
	return html`<span class=progress><${Bar} of=${size} parts=${[
		["succeeded", done, "ok"],
		["failed", failed, "failed"],
		["run", running, "busy"],
	]} /> ${num(done)} of ${num(size)}${failed ? html` <b class=s-F>✗ ${num(failed)}</b>` : ""}</span>`
}

export const jobColumns = [
	["state", r => html`<${State} state=${r.state} />`],
	[
		"name",
		r =>
			html`<${Job} id=${r.jobId} name=${r.jobName} />${r.arraySize ? html` <small>array of ${num(r.arraySize)}</small>` : r.nodes ? html` <small>${r.nodes} nodes</small>` : ""}${r.heldBy && html` <b>held</b>`}`,
	],
	["queue", r => text(r.queue, 40), "opt"],
	["GPUs", r => (r.gpuShare ? r.gpuShare : r.gpus || "-"), "n opt"],
	[
		"waited",
		r => (r.startedAt ? span(r.startedAt - r.createdAt) : r.stoppedAt ? "-" : span(now() - r.createdAt)),
		"n opt",
	],
	["ran", r => (r.startedAt ? span((r.stoppedAt ?? now()) - r.startedAt) : "-"), "n"],
	["tries", r => r.attempts || "-", "n opt"],
	[
		"how it stands",
		r =>
			r.summary
				? html`<${Progress} summary=${r.summary} size=${r.arraySize} />`
				: html`${r.alarm && html`<b class=s-F>! </b>`}${text(r.alarm ?? (r.step != null && !r.stoppedAt ? `step ${num(r.step)}` : (r.doing ?? (r.state === "FAILED" && r.exitCode ? `exit code ${r.exitCode}` : r.state === "SUCCEEDED" ? "" : (r.statusReason ?? "")))), 90)}`,
		"grow",
	],
	["owner", r => text(r.owner, 24), "opt"],
	["submitted", r => html`<span title=${clock(r.createdAt)}>${span(now() - r.createdAt)} ago</span>`, "n opt"],
]

// Submissions over time; dragging or two clicks choose a span.
function Ruler({q}) {
	const ref = useRef(),
		width = useWidth(ref)
	const [first, setFirst] = useState(null)
	const to = Math.ceil(now() / 6e4) * 6e4,
		length = SPANS[q.ruler] ?? SPANS["7 d"]
	const answer = useAnswer(
		"Submissions",
		{sinceAt: to - length, buckets: 120, queue: q.queue || undefined},
		{every: 20000},
	)
	const d = answer.data
	if (!d) return html`<div ref=${ref} class=ruler><${Problem} error=${answer.error} /></div>`
	const total = b => Object.values(b.counts).reduce((a, n) => a + n, 0)
	const most = Math.max(1, ...d.buckets.map(total)),
		x = at => ((at - d.fromAt) / (d.toAt - d.fromAt)) * width
	const at = event =>
		d.fromAt + ((event.clientX - ref.current.getBoundingClientRect().left) / width) * (d.toAt - d.fromAt)
	const choose = event => {
		const end = at(event)
		if (first == null) return
		const [a, b] = [Math.min(first, end), Math.max(first, end)]
		setQuery(
			b - a < length / 100
				? {since: "", until: Math.round(b + length / 120)}
				: {since: Math.round(a), until: Math.round(b)},
		)
		setFirst(null)
	}
	return html`<div class=ruler ref=${ref}><svg width=${width} height="44" role="img" aria-label="${num(d.buckets.reduce((a, b) => a + total(b), 0))} jobs were submitted since ${clock(d.fromAt, false)}" onPointerDown=${e => setFirst(at(e))} onPointerUp=${choose}>
		${(q.since || q.until) && html`<rect class=picked x=${Math.max(0, x(Number(q.since) || d.fromAt))} width=${Math.max(2, x(Number(q.until) || d.toAt) - Math.max(0, x(Number(q.since) || d.fromAt)))} height="44" />`}
		${d.buckets.map(b => {
			const all = 34 * Math.sqrt(total(b) / most),
				bad = all * ((b.counts.FAILED ?? 0) / total(b)),
				w = Math.max(2, x(d.fromAt + d.stepMs) - 1)
			return html`<g><title>${clock(b.at, false)}: ${count(total(b), "job")}${b.counts.FAILED ? `, ${b.counts.FAILED} failed` : ""}</title><rect class=ok x=${x(b.at)} y=${38 - all} width=${w} height=${all} /><rect class=failed x=${x(b.at)} y=${38 - bad} width=${w} height=${bad} /></g>`
		})}
		</svg><span class="row quiet"><span>${clock(d.fromAt, false)}</span><span class=grow /><span class=chips>${Object.keys(SPANS).map(name => html`<button aria-pressed=${length === SPANS[name]} onClick=${() => setQuery({ruler: name})}>${name}</button>`)}</span><span class=grow /><span>now</span></span></div>`
}

function Filters({q, counts}) {
	const states = list(q.states),
		queues = Object.keys(counts.data?.counts ?? {}).sort()
	const total = q.queue ? (counts.data?.counts[q.queue] ?? {}) : (counts.data?.total ?? {})
	return html`<div class=filters role="group" aria-label="filters"><label>queue <select value=${q.queue ?? ""} onChange=${e => setQuery({queue: e.target.value})}><option value="">all</option>${queues.map(queue => html`<option value=${queue}>${queue.slice(0, 60)}</option>`)}</select></label>
		<label>name <input value=${q.name ?? ""} onInput=${e => setQuery({name: e.target.value})} placeholder="train*" /></label>
		<span class=chips>${Object.entries(STATES).map(([state, [letter, sign, words]]) => html`<button class="s-${letter}" aria-pressed=${states.includes(state)} onClick=${() => setQuery({states: (states.includes(state) ? states.filter(s => s !== state) : [...states, state]).join()})}>${sign} ${words} <b>${num(total[state] ?? 0)}</b></button>`)}</span>
		${(q.since || q.until) && html`<button onClick=${() => setQuery({since: "", until: ""})}>${q.since ? clock(+q.since, false) + " to " : "before "}${q.until ? clock(+q.until, false) : "now"} ✗</button>`}</div>`
}

// Pages of rows; those far above are dropped and asked again when wanted.
function useRows(question, counted) {
	const [state, setState] = useState({at: 0, rows: [], next: null})
	const key = JSON.stringify(question),
		current = useRef()
	current.current = key
	const load = async after => {
		try {
			const answer = await own("Jobs", {...question, after: after ?? undefined})
			if (current.current !== key) return
			setState(old => {
				const rows = after ? [...old.rows, ...answer.rows] : answer.rows
				return {
					data: true,
					at: Date.now(),
					rows: rows.slice(-MOST),
					dropped: (after ? (old.dropped ?? 0) : 0) + Math.max(0, rows.length - MOST),
					next: answer.next,
					key,
					pages: after ? old.pages + 1 : 1,
				}
			})
		} catch (error) {
			setState(old => ({...old, error}))
		}
	}
	useEffect(() => void load(), [key])
	// The first page follows what happens; one who reads further down is left in peace.
	useEffect(() => {
		const again = () => !document.hidden && (state.pages ?? 1) === 1 && load()
		const timer = setInterval(again, 4000)
		if (counted && state.at) again()
		return () => clearInterval(timer)
	}, [key, counted, state.pages])
	return {...state, again: () => load(), more: () => state.next && load(state.next)}
}

export function Jobs() {
	const q = route.value.q,
		question = asked(q)
	const counts = useAnswer("Counts", {}, {every: 4000, topic: "counts"})
	const rows = useRows(question, counts.data && JSON.stringify(counts.data.total))
	const end = useRef()
	useEffect(() => {
		const seen = new IntersectionObserver(([entry]) => entry.isIntersecting && rows.more(), {rootMargin: "600px"})
		seen.observe(end.current)
		return () => seen.disconnect()
	}, [rows.next])
	const live = rows.rows.filter(r => !r.stoppedAt).map(r => r.jobId)
	const ends = useAnswer(live.length ? "ExpectedEnds" : null, {jobIds: live}, {every: 20000}).data?.ends ?? {}
	const columns = [
		...jobColumns.slice(0, 8),
		["ends about", r => html`<span title=${endWords(ends[r.jobId])}>${ends[r.jobId] ? clock(ends[r.jobId].at, false) : "-"}</span>`, "n opt"],
		...jobColumns.slice(8),
	]
	const all = Object.values(counts.data?.total ?? {}).reduce((a, n) => a + n, 0)
	const filtered = q.queue || q.states || q.name || q.since || q.until
	const command = ["windfall jobs", q.queue && `--queue ${quoted(q.queue)}`, ...list(q.states).map(s => `--state ${s}`)]
		.filter(Boolean)
		.join(" ")
	return html`<h1>${counts.data ? count(all, "job") : "Jobs"}</h1><${Filters} q=${q} counts=${counts} /><${Ruler} q=${q} />
		<${Panel} title=${filtered ? "Jobs that match" : "Newest jobs"} of=${rows} command=${command}>
			${rows.dropped > 0 && html`<p class=quiet>${num(rows.dropped)} newer rows are left out. <button onClick=${rows.again}>back to the newest</button></p>`}
			${
				rows.rows.length
					? html`<${Table} label="jobs" columns=${columns} rows=${rows.rows} keyOf=${r => r.jobId} />`
					: filtered
						? html`<${Empty}>None of ${count(all, "job")} matches. ${["name", "states", "queue", "since"].filter(f => q[f]).map(f => html`<button onClick=${() => setQuery({[f]: "", ...(f === "since" ? {until: ""} : {})})}>drop ${f}</button> `)}<//>`
						: html`<${Empty} command="windfall run --array 100 -- python train.py">No job was submitted yet. This submits an array of 100:<//>`
			}
<//>
		<div ref=${end} class=row>${rows.next ? html`<button onClick=${rows.more}>older jobs</button>` : rows.rows.length > 0 && html`<small>That is all of them.</small>`}</div>`
}
