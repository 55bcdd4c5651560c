// Now: is my hardware working, and what needs me?

import {useAnswer} from "./api.js"
import {Curves} from "./curves.js"
import {Gpu} from "./machines.js"
import {Empty, Job, Panel, Table, text, html} from "./parts.js"
import {href, jobHref, route, setQuery} from "./route.js"
import {bytes, clock, count, num, percent, span, usd} from "./words.js"

const HOURS = [1, 6, 24, 168]

function Alarms() {
	const alarms = useAnswer("Alarms", {}, {every: 5000, topic: "alarms"})
	const list = alarms.data?.alarms ?? []
	const place = a => (a.jobId ? jobHref(a.jobId) : a.queue ? href("queues", a.queue) : href("machines"))
	return html`<${Panel} title="Needs you${list.length ? ` (${list.length})` : ""}" of=${alarms} command="windfall status">
		${
			list.length
				? html`<ul class=alarms aria-live="polite">${list.map(
						a => html`<li class=${a.severity} data-row key=${a.kind + a.text}><b aria-label=${a.severity === "bad" ? "serious" : "warning"}>${a.severity === "bad" ? "!!" : "!"}</b>
			<a href=${place(a)}>${text(a.text, 200)}</a>${a.since && html` <span class=age>since ${clock(a.since, false)}</span>`}${a.command && html` <code>${a.command}</code>`}</li>`,
					)}</ul>
			${alarms.data.leftOut > 0 && html`<p class=quiet>left out: ${alarms.data.leftOut}</p>`}`
				: html`<p class=quiet>✓ Nothing. No queue is blocked, no GPU is fenced, no checkpoint is late.</p>`
		}<//>`
}

function Numbers({top, points}) {
	const newest = points.at(-1),
		hour = points.filter(p => p.at > (newest?.at ?? 0) - 3600000)
	const sum = name => hour.reduce((total, p) => total + (p[name] ?? 0), 0)
	const number = (value, words, place) => html`<a class=number href=${place}><b>${value}</b> <span>${words}</span></a>`
	return html`<div class=numbers>${number(num(top.running), "run", href("jobs", "", "", {states: "RUNNING"}))}${number(num(top.waiting), "wait", href("jobs", "", "", {states: "RUNNABLE"}))}
		${points.length > 0 && number(num(sum("succeeded")), "done in 1 h", href("jobs", "", "", {states: "SUCCEEDED"}))}${points.length > 0 && number(num(sum("failed")), "failed in 1 h", href("jobs", "", "", {states: "FAILED"}))}
		${newest?.gpus > 0 && number(`${num(newest.gpusHeld)} of ${num(newest.gpus)}`, "GPUs held", href("machines"))}${newest?.usdHour != null && number(usd(newest.usdHour), "per hour", href("cost"))}</div>`
}

export function Now() {
	const hours = Number(route.value.q.hours) || 6
	const top = useAnswer("Top", {}, {every: 3000, topic: "now"})
	const machines = useAnswer("Machines", {}, {every: 5000})
	const activity = useAnswer("Activity", {hours}, {every: 15000})
	const points = activity.data?.points ?? []
	const list = top.data?.machines ?? machines.data?.machines ?? []
	const jobs = top.data?.jobs ?? [],
		names = Object.fromEntries(jobs.map(job => [job.jobId, job.jobName]))
	const gpus = list.flatMap(machine =>
		machine.gpus.map(gpu => ({
			...gpu,
			sample: top.data?.gpus.find(g => g.id === gpu.id)?.sample ?? gpu.sample,
			machine,
		})),
	)
	const curve = (name, pick, write = num, max) => ({
		name,
		write,
		max,
		at: points.map(p => p.at),
		lines: [points.map(pick)],
	})
	const curves =
		points.length > 1
			? [
					curve("jobs that run", p => p.running),
					curve("jobs that wait", p => p.waiting),
					...(points.some(p => p.gpus)
						? [
								curve("GPUs held", p => p.gpusHeld, num, Math.max(...points.map(p => p.gpus))),
								curve("GPU busy", p => (p.gpuBusy == null ? null : p.gpuBusy / 100), percent, 1),
							]
						: [curve("vCPUs held", p => p.vcpusHeld, num, Math.max(...points.map(p => p.vcpus ?? 0)))]),
					...(points.some(p => p.usdHour != null) ? [curve("$ per hour", p => p.usdHour, usd)] : []),
				]
			: []
	return html`<h1 class=sr>Now</h1>${top.data && html`<${Numbers} top=${top.data} points=${points} />`}<${Alarms} />
		<div class=columns><${Panel} title="GPUs" of=${machines.error && !list.length ? machines : top} command="windfall gpus">
			${
				gpus.length
					? html`<ol class=gpus>${gpus.map((gpu, at) => html`<${Gpu} gpu=${gpu} at=${at} names=${names} many=${list.length > 1} key=${gpu.id} />`)}</ol>`
					: html`<p class=quiet>No machine has a GPU; jobs run on ${count(top.data?.host?.vcpus, "vCPU")}. <code>windfall doctor</code> says why one is missing.</p>`
			}<//>
		<${Panel} title="Last ${hours === 168 ? "week" : hours + " h"}" of=${activity} command="windfall top" actions=${html`<span class=chips>${HOURS.map(h => html`<button aria-pressed=${h === hours} onClick=${() => setQuery({hours: h === 6 ? "" : h})}>${h === 168 ? "week" : h + " h"}</button>`)}</span>`}>
			${curves.length ? html`<${Curves} curves=${curves} from=${Math.min(points[0].at, activity.data.at - hours * 36e5 * 0.02)} to=${activity.data.at} />` : html`<p class=quiet>The daemon writes a point every few seconds; come back in a minute.</p>`}<//></div>
		<${Panel} title="What runs" of=${top} command="windfall top">${
			jobs.length
				? html`<${Table} label="running jobs" rows=${jobs.slice(0, 30)} keyOf=${j => j.jobId} columns=${[
						["job", j => html`<${Job} id=${j.jobId} name=${j.jobName} />`],
						["for", j => (j.startedAt ? span(top.data.at - j.startedAt) : (j.doing ?? "starts")), "n"],
						["GPUs", j => j.gpuIds.length || "-", "n"],
						["GPU busy", j => percent(mean(j.sample?.gpus.map(g => g.busy))), "n"],
						["CPU", j => (j.sample?.cpuCores == null ? "-" : `${num(j.sample.cpuCores)} of ${num(j.vcpus)}`), "n opt"],
						["memory", j => bytes(j.sample?.memoryBytes), "n opt"],
						["limited by", j => j.cause ?? "-"],
					]} />${top.data.running > 30 && html`<p class=quiet>${num(Math.min(jobs.length, 30))} of ${num(top.data.running)} are shown, those with GPUs first. <a href=${href("jobs", "", "", {states: "RUNNING"})}>all</a></p>`}`
				: html`<${Empty} command="windfall run -- python train.py">Nothing runs. This runs a job in your directory and follows its log:<//>`
		}<//>`
}

export function mean(values = []) {
	const known = values.filter(value => value != null)
	return known.length ? known.reduce((a, b) => a + b, 0) / known.length : null
}
