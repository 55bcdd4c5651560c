// Job: what happened to it, and what now? The diagnosis if it failed, the life line, curves on the same axis, and
// tabs.

import {useEffect, useRef, useState} from "./vendor/hooks.js"
import {batch, now, own, useAnswer} from "./api.js"
import {ArrayCells} from "./array.js"
import {Curves} from "./curves.js"
import {Files} from "./files.js"
import {LifeLine} from "./lifeline.js"
import {Log} from "./log.js"
import {mean} from "./now.js"
import {Advice, Checkpoints, Costs, Definition, Events, Json, Why} from "./job_tabs.js"
import {Panel, Problem, State, prose, text, dialog, html, jobCommand} from "./parts.js"
import {go, jobHref, route, setQuery} from "./route.js"
import {ENDED, bytes, clock, count, cut, endWords, num, percent, span} from "./words.js"

const TABS = {
	log: "Log",
	why: "Why",
	cost: "Cost",
	advice: "Advice",
	checkpoints: "Checkpoints",
	files: "Files",
	definition: "Definition",
	events: "Events",
	json: "JSON",
}

// A number for the priority, and what it would do to the job's turn, as the scheduler counts it.
function Priority({row, value, set}) {
	const number = Math.max(0, Math.min(9999, Math.round(value) || 0))
	const {data: d, error} = useAnswer("SetPriority", {jobId: row.jobId, priority: number, preview: true})
	const told = !d
		? ""
		: d.aheadAfter == null
			? "It does not wait for a place now. Its priority counts when a more urgent job of its share needs its place, and for its next attempt."
			: `${count(d.aheadAfter, "job")} of its share would go before it; ${num(d.aheadBefore)} do now.`
	return html`<label>priority <input type="number" min="0" max="9999" value=${value} onInput=${e => set(e.target.value)} /></label>
		<p role="status">${error && error.code !== "AccessDeniedException" ? error.message : told}</p>`
}
const priorityDialog = row => ({
	title: "change priority",
	text: `Among the jobs of its share ${row.share} the higher goes first, from 0 to 9999. It is ${row.priority} now.`,
	role: "submit",
	value: row.priority,
	body: (value, set) => html`<${Priority} row=${row} value=${value} set=${set} />`,
	command: value => `${jobCommand("priority", row.jobId)} ${value}`,
	act: value => own("SetPriority", {jobId: row.jobId, priority: Number(value)}),
})

function Actions({page}) {
	const {row, lossIfStopped} = page,
		id = row.jobId,
		ended = ENDED.includes(row.state),
		runs = row.state === "RUNNING"
	const loss = !runs
		? "It has not started, so nothing is lost."
		: lossIfStopped?.seconds != null
			? lossIfStopped.since
				? `${span(lossIfStopped.seconds * 1000)} since the last checkpoint are lost, unless it saves on notice.`
				: `It keeps no checkpoint: all ${span(lossIfStopped.seconds * 1000)} of its work are lost.`
			: "Work since its last checkpoint is lost."
	const ask = (title, text, command, act, done) =>
		html`<button onClick=${() => (dialog.value = {title, text, role: "submit", command, act, done})}>${title}…</button>`
	return html`<div class=actions role="group" aria-label="actions">
		${runs && !row.arraySize && ask("interrupt", `It gets notice, saves if it can, and goes on elsewhere. ${lossIfStopped?.since ? "" : "It keeps no checkpoint that is known, so it may begin anew."}`, jobCommand("interrupt", id), () => own("Interrupt", {jobId: id}))}
		${!ended && !runs && (row.heldBy ? ask("release", "It may start again when it is its turn.", jobCommand("release", id), () => own("Release", {jobId: id})) : ask("hold", "It keeps its place in the queue and does not start until it is released.", jobCommand("hold", id), () => own("Hold", {jobId: id})))}
		${!ended && row.share && html`<button onClick=${() => (dialog.value = priorityDialog(row))}>priority…</button>`}
		${!ended && ask("stop", `It ends for good. ${loss}`, jobCommand("terminate", id), () => batch("TerminateJob", {jobId: id, reason: "stopped from the page"}))}
		${
			ended &&
			ask(
				"run again",
				row.arraySize
					? "The children that failed are submitted again, each with its index."
					: "It is submitted again as a new job, and goes on from its checkpoint if it has one.",
				jobCommand("retry", id) + (row.state === "SUCCEEDED" ? " --all" : ""),
				() => own("Retry", {jobId: id, all: row.state === "SUCCEEDED"}),
				a => go("job", a.jobId),
			)
		}</div>`
}

function Head({page, at}) {
	const r = page.row,
		a = page.attempts.at(-1),
		end = page.expectedEnd
	const facts = [
		a && `try ${a.number}`,
		r.queue,
		r.share && `share ${r.share}, priority ${r.priority}`,
		r.gpus
			? `${num(r.gpus)} GPU${r.gpus > 1 ? "s" : ""}`
			: r.gpuShare
				? `${r.gpuShare} of a GPU`
				: `${num(r.vcpus)} vCPU`,
		a?.instanceType,
		r.step != null && `step ${num(r.step)}`,
		a?.progress?.loss != null && `loss ${num(a.progress.loss)}`,
		r.arraySize
			? null
			: r.startedAt
				? `ran ${span((r.stoppedAt ?? at) - r.startedAt)}`
				: `waits ${span((r.stoppedAt ?? at) - r.createdAt)}`,
		!r.stoppedAt && endWords(end),
		r.owner && `of ${r.owner}`,
	]
	return html`<div class=job-head><div><h1>${text(r.jobName, 120)} <${State} state=${r.state} />${r.heldBy && html` <b>held by ${r.heldBy}</b>`}</h1>
		<p class=quiet>${text(facts.filter(Boolean).join(" · "), 300)}</p><p class=quiet><code>${cut(r.jobId, 60)}</code>${r.jobId.includes(":") && html` <a href=${jobHref(r.jobId.split(":")[0], "", {child: r.jobId.split(":")[1]})}>the array</a>`}</p></div><${Actions} page=${page} /></div>
		${r.alarm && html`<p class=problem><b>!</b> ${text(r.alarm, 300)}</p>`}`
}

// Why it failed stands above everything, with the line it came from.
function Diagnosis({page}) {
	const {row, why, attempts} = page,
		last = attempts.at(-1),
		d = last?.diagnosis
	if (row.state !== "FAILED") return null
	const reasons = (why?.reasons ?? []).map(r => r.text)
	return html`<section class="panel diagnosis" aria-label="why it failed"><h2>✗ ${d ? `It failed: ${String(d.cause).replaceAll("_", " ")}` : "It failed"}</h2>
		${d?.evidence && html`<p><a href=${jobHref(row.jobId, "log", {a: last.number, find: evidenceWords(d.evidence), ...(d.position != null ? {at: d.position} : {})})}><code>${text(d.evidence, 300)}</code></a></p>`}
		${!d && reasons.map(line => html`<p>${text(line, 400)}</p>`)}${!reasons.length && row.statusReason && html`<p>${text(row.statusReason, 400)}</p>`}
		${why?.changes?.length > 0 && html`<h3>What to do</h3><ul>${why.changes.map(line => html`<li>${prose(cut(line, 500))}</li>`)}</ul>`}</section>`
}
const evidenceWords = text => text.replace(/…$/, "").trim().slice(0, 80)

const join = (recordings, pick) => recordings.flatMap((samples, i) => [...(i ? [null] : []), ...samples.map(pick)])
function curvesOf(answers, metrics) {
	const recordings = answers.map(a => a.samples).filter(s => s.length)
	const curves = []
	if (recordings.length) {
		const at = recordings.flatMap((samples, i) => [...(i ? [samples[0].at - 1] : []), ...samples.map(s => s.at)])
		const seen = pick => recordings.some(samples => samples.some(s => pick(s) != null))
		const curve = (name, picks, write, more = {}) =>
			picks.some(seen) && curves.push({name, at, lines: picks.map(pick => join(recordings, pick)), write, ...more})
		const gpu = (name, field, write, more) => {
			const values = s => s.gpus.map(g => g[field]).filter(v => v != null),
				many = recordings.some(r => r[0].gpus.length > 1)
			const least = s => (values(s).length ? Math.min(...values(s)) : null),
				most = s => (values(s).length ? Math.max(...values(s)) : null)
			curve(name, many ? [s => mean(values(s)), least, most] : [s => mean(values(s))], write, {
				band: many,
				note: many ? `band: lowest and highest of ${recordings[0][0].gpus.length}` : "",
				...more,
			})
		}
		const newest = answers.findLast(a => a.samples.length)
		gpu("GPU busy", "busy", percent, {max: 1})
		gpu("SM active", "smActive", percent, {max: 1})
		gpu("tensor active", "tensorActive", percent, {max: 1})
		gpu("GPU memory", "memoryBytes", bytes, {
			limit: newest.gpus[0]?.memoryMib ? newest.gpus[0].memoryMib * 1048576 : undefined,
		})
		curve("CPU cores", [s => s.cpuCores], num, {
			limit: newest.vcpus ?? undefined,
			note: newest.vcpus ? `of ${num(newest.vcpus)}` : "",
		})
		curve("memory", [s => s.memoryBytes], bytes, {limit: newest.memoryMib ? newest.memoryMib * 1048576 : undefined})
		const rate = n => bytes(n, "/s")
		curve("network in / out", [s => s.netRxBytesS ?? s.hostRxBytesS, s => s.netTxBytesS ?? s.hostTxBytesS], rate)
		curve("disk read / write", [s => s.readBytesS, s => s.writeBytesS], rate)
		if (recordings.some(r => r.some(s => s.steps > 0)))
			curve("steps per second", [s => (s.steps == null ? null : (s.steps * 1000) / (s.spanMs || 1000))], num)
	}
	const names = [...new Set((metrics?.attempts ?? []).flatMap(a => a.series.map(s => s.name)))].slice(0, 12)
	const own = names.map(name => {
		const series = metrics.attempts.flatMap(a => a.series.filter(s => s.name === name))
		const points = series
			.flatMap((s, i) => [...(i ? [[s.points[0]?.[0] - 1, null, null]] : []), ...s.points])
			.filter(([at]) => Number.isFinite(at))
			.sort((a, b) => a[0] - b[0])
		return {
			name: cut(name, 40),
			at: points.map(p => p[0]),
			lines: [points.map(p => p[2])],
			write: num,
			note: series[0].source,
		}
	})
	return [...own.filter(c => c.at.length > 1), ...curves]
}

// The samples of the newest attempts; those of ended ones are asked once.
function useSamples(id, attempts) {
	const [answers, setAnswers] = useState({})
	const held = useRef({})
	const wanted = attempts.slice(-6),
		key = wanted.map(a => `${a.number}${a.startedAt}${a.stoppedAt}`).join()
	useEffect(() => {
		let on = true
		const ask = async () => {
			for (const a of wanted) {
				const old = held.current[a.number]
				if (!a.startedAt || (old && old.stoppedAt) || document.hidden) continue
				try {
					const fresh = await own("Samples", {jobId: id, attempt: a.number, sinceAt: old?.samples.at(-1)?.at})
					if (old) fresh.samples = [...old.samples, ...fresh.samples].slice(-4096)
					held.current = {...held.current, [a.number]: fresh}
				} catch {
					// A log that was removed has no samples; the life line needs none.
				}
			}
			if (on) setAnswers(held.current)
		}
		ask()
		const timer = setInterval(ask, 5000)
		return () => ((on = false), clearInterval(timer))
	}, [id, key])
	return wanted.map(a => answers[a.number]).filter(Boolean)
}

function Pictures({page, of, at, chosen, choose}) {
	const {row, attempts} = page,
		q = route.value.q,
		id = row.jobId,
		ended = !!row.stoppedAt
	const cost = useAnswer("Cost", {jobId: id}, {every: ended ? 0 : 20000})
	const metrics = useAnswer("JobMetrics", {jobId: id}, {every: ended ? 0 : 10000})
	const samples = useSamples(id, attempts)
	const stop = row.stoppedAt ?? Math.max(at, Math.min(page.expectedEnd?.highAt ?? at, at + (at - row.createdAt)))
	const length = Math.max(10000, stop - row.createdAt),
		all = [row.createdAt - length * 0.01, stop + length * 0.02]
	const [from, to] = q.from && q.to ? [Number(q.from), Number(q.to)] : all
	const zoom = (a, b) =>
		setQuery(
			a == null || b - a > (all[1] - all[0]) * 1.5
				? {from: "", to: ""}
				: {from: Math.round(a), to: Math.round(Math.max(b, a + 1000))},
		)
	const curves = curvesOf(samples, metrics.data),
		more = q.curves === "all"
	return html`<${Panel} title="Life" of=${of} command=${jobCommand("describe", id)} actions=${q.from && html`<button onClick=${() => zoom(null)}>show all ( 0 )</button>`}>
		<${LifeLine} page=${page} cost=${cost.data} from=${from} to=${to} now=${at} zoom=${zoom} chosen=${chosen} choose=${choose} />
		${curves.length > 0 && html`<${Curves} curves=${more ? curves : curves.slice(0, 4)} from=${from} to=${to} onZoom=${zoom} />`}
		${
			curves.length > 4 &&
			html`<button onClick=${() => setQuery({curves: more ? "" : "all"})}>${
				more
					? "fewer curves"
					: `${curves.length - 4} more: ${curves
							.slice(4)
							.map(c => c.name)
							.join(", ")}`
			}</button>`
		}
		${!curves.length && attempts.length > 0 && html`<p class=quiet>${samples.length || ended ? "Nothing was measured: it was too short, or its samples were removed with its log." : "No sample yet; one is taken every few seconds."}</p>`}<//>`
}

export function JobView() {
	const {id, tab, q} = route.value
	const answer = useAnswer("JobPage", {jobId: id}, {every: 3000, topic: "job:" + id})
	const reasons = useAnswer("Reasons", {jobId: id}, {every: 15000})
	const going = answer.data && !answer.data.row.stoppedAt
	const ends = useAnswer(going ? "ExpectedEnds" : null, {jobIds: [id]}, {every: 15000})
	const page = answer.data && {
		...answer.data,
		reasons: reasons.data?.reasons ?? [],
		expectedEnd: ends.data?.ends[id] ?? answer.data.expectedEnd,
	}
	const attempts = page?.attempts ?? [],
		newest = attempts.at(-1)?.number
	const chosen = attempts.find(a => a.number === Number(q.a))?.number ?? newest
	const shown = TABS[tab] ? tab : page?.row.arraySize ? "definition" : "log"
	useEffect(() => {
		const keys = event => {
			if (!"[]".includes(event.key) || event.target.matches("input,select") || !chosen) return
			const next = attempts[attempts.findIndex(a => a.number === chosen) + (event.key === "]" ? 1 : -1)]
			if (next) setQuery({a: next.number, at: ""})
		}
		addEventListener("keydown", keys)
		return () => removeEventListener("keydown", keys)
	})
	if (!page)
		return html`<h1 class=sr>Job</h1><${Problem} error=${answer.error} again=${answer.again} />${answer.error?.status === 404 ? html`<p>It never was, or it was purged after its time. <a href="#/jobs">All jobs</a></p>` : !answer.error && html`<p class=quiet>asking…</p>`}`
	const at = now()
	const live = attempts.find(a => a.number === chosen)?.stoppedAt == null
	const bodies = {
			why: Why,
			cost: Costs,
			advice: Advice,
			checkpoints: Checkpoints,
			files: Files,
			definition: Definition,
			events: Events,
			json: Json,
		},
		Body = bodies[shown]
	return html`${answer.error && html`<p class=stale>This is what was seen ${clock(answer.at)}: ${answer.error.message}</p>`}<${Head} page=${page} at=${at} /><${Diagnosis} page=${page} />
		${page.row.arraySize && html`<${ArrayCells} id=${id} />`}
		${!page.row.arraySize && html`<${Pictures} page=${page} of=${answer} at=${at} chosen=${chosen} choose=${number => setQuery({a: number, at: ""})} />`}
		<section class="panel wide" aria-label="details"><nav class=tabs aria-label="details of the job">${Object.entries(TABS)
			.filter(([name]) => !page.row.arraySize || !["log", "checkpoints", "advice", "files"].includes(name))
			.map(
				([name, title]) =>
					html`<a href=${jobHref(id, name, {a: q.a, from: q.from, to: q.to})} aria-current=${name === shown ? "page" : null}>${title}</a>`,
			)}
			${attempts.length > 1 && html`<label class="grow right">attempt <select value=${chosen} onChange=${e => setQuery({a: e.target.value, at: ""})}>${attempts.map(a => html`<option value=${a.number}>${a.number}${a.number === newest ? " (newest)" : ""}</option>`)}</select></label>`}</nav>
			${shown === "log" ? (chosen ? html`<${Log} id=${id} attempt=${chosen} live=${live} key=${id + chosen} />` : html`<p class=quiet>It has not started, so there is no log. <a href=${jobHref(id, "why")}>Why it waits</a></p>`) : html`<${Body} page=${page} attempt=${chosen} at=${at} />`}</section>`
}
