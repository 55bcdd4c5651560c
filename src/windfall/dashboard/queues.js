// Queues: when is it my turn, and who is before me?

import {useEffect, useState} from "./vendor/hooks.js"
import {batch, useAnswer} from "./api.js"
import {Bar, Empty, Job, Panel, Table, text, html} from "./parts.js"
import {href, route} from "./route.js"
import {WhatIf} from "./whatif.js"
import {clock, count, num, percent, quoted} from "./words.js"

const amount = a => (a.gpus ? `${num(a.gpus)} GPU` : `${num(a.vcpus)} vCPU`)
const idOf = arn => arn.replace(/^.*?:job\//, "").replace(/^.*\//, "")

function Shares({queue}) {
	const answer = useAnswer("Shares", {queue}, {every: 5000}),
		q = answer.data?.queues[0]
	if (!q) return html`<${Panel} title="Shares" of=${answer} />`
	const unit = q.total.gpus ? "gpus" : "vcpus",
		weights = q.shares.reduce((sum, s) => sum + 1 / (s.weight || 1), 0),
		held = q.used[unit] || 1
	return html`<${Panel} title="Shares" of=${answer} command="windfall shares ${quoted(queue)}">
		<p>${num(q.used[unit])} of ${amount(q.total)} in use${q.kept[unit] ? `, ${amount(q.kept)} kept for shares to come` : ""}. <${Bar} of=${q.total[unit]} parts=${[
			["in use", q.used[unit], "busy"],
			["kept", q.kept[unit], "idle"],
		]} /></p>
		${
			q.shares.length
				? html`<${Table} label="shares of ${queue}" rows=${q.shares} keyOf=${s => s.share} columns=${[
						["share", s => text(s.share, 40)],
						q.kind === "fairshare"
							? [
									"due and has",
									s =>
										html`<${Bar} of=${1} parts=${[["has", s.used[unit] / held, "busy"]]} label="has ${percent(s.used[unit] / held)}" /> <small>due ${percent(1 / (s.weight || 1) / weights)}, has ${percent(s.used[unit] / held)}</small>`,
									"grow",
								]
							: [
									"used of its limit",
									s =>
										Object.entries(s.limits ?? {})
											.map(([name, limit]) => `${num(s.usedOfLimits[name] ?? 0)} of ${num(limit)} ${name}`)
											.join(", ") || amount(s.used),
									"grow",
								],
						["runs", s => num(s.running), "n"],
						["waits", s => num(s.waiting), "n"],
					]} />`
				: html`<p class=quiet>${q.kind === "fifo" ? "It has no scheduling policy: jobs go in the order in which they came." : "No share has jobs now."}</p>`
		}<//>`
}

function Front({queue, counts, told}) {
	const answer = useAnswer("GetJobQueueSnapshot", {jobQueue: queue}, {every: 5000, through: batch})
	const ids = (answer.data?.frontOfQueue?.jobs ?? []).map(job => idOf(job.jobArn)),
		shown = ids.slice(0, 20)
	const rows = useAnswer(shown.length ? "JobRows" : null, {jobIds: shown}, {every: 10000}),
		whys = useAnswer(shown.length ? "Whys" : null, {jobIds: shown}, {every: 10000})
	const row = id => rows.data?.rows.find(r => r.jobId === id),
		why = id => whys.data?.answers.find(w => w.jobId === id),
		waiting = counts.RUNNABLE ?? 0
	useEffect(() => told(rows.data?.rows ?? []), [rows.data])
	return html`<${Panel} title="Front of the queue" of=${answer} command="aws batch get-job-queue-snapshot --job-queue ${quoted(queue)}">${
		ids.length
			? html`<p class=quiet>${num(shown.length)} of ${num(Math.max(waiting, shown.length))} that wait, the next one first.</p><${Table} label="front of the queue" rows=${shown} keyOf=${id => id} columns=${[
					["place", id => shown.indexOf(id) + 1, "n"],
					["job", id => html`<${Job} id=${id} name=${row(id)?.jobName} tab="why" />`],
					["share", id => text(row(id)?.share ?? "-", 24), "opt"],
					["needs", id => row(id) && (row(id).gpus ? count(row(id).gpus, "GPU") : count(row(id).vcpus, "vCPU")), "n"],
					["starts", id => (why(id)?.expectedAt ? clock(why(id).expectedAt, false) : "-"), "n"],
					["because", id => text(why(id)?.reasons[0]?.text ?? "", 160), "grow"],
				]} />`
			: html`<p class=quiet>✓ No job waits${waiting ? ` for a place; ${num(waiting)} are being placed` : ""}.</p>`
	}<//>`
}

export function Queues() {
	const [front, setFront] = useState([])
	const status = useAnswer("Status", {}, {every: 5000})
	const queues = (status.data?.queues ?? [])
		.slice()
		.sort((a, b) => b.priority - a.priority || (a.name < b.name ? -1 : 1))
	const chosen = queues.find(q => q.name === route.value.id) ?? queues[0]
	const waits = q => (q.counts.RUNNABLE ?? 0) + (q.counts.PENDING ?? 0) + (q.counts.SUBMITTED ?? 0)
	return html`<h1>${status.data ? count(queues.length, "queue") : "Queues"}</h1><${Panel} title="Queues" of=${status} command="windfall queues">
		${
			queues.length
				? html`<${Table} label="queues" rows=${queues} keyOf=${q => q.name} columns=${[
						[
							"queue",
							q =>
								html`<a href=${href("queues", q.name)} aria-current=${q === chosen ? "true" : null}>${text(q.name, 60)}</a>`,
						],
						["priority", q => q.priority, "n"],
						["state", q => (q.state === "ENABLED" ? "takes jobs" : html`<b>! ${q.state}</b>`), "opt"],
						["waits", q => num(waits(q)), "n"],
						["runs", q => num((q.counts.RUNNING ?? 0) + (q.counts.STARTING ?? 0)), "n"],
						["succeeded", q => num(q.counts.SUCCEEDED ?? 0), "n opt"],
						["failed", q => num(q.counts.FAILED ?? 0), "n opt"],
						["all", q => html`<a href=${href("jobs", "", "", {queue: q.name})}>jobs</a>`],
					]} />`
				: html`<${Empty} command="windfall run -- hostname">There is no queue yet. The first job of \`windfall run\` makes one; \`aws batch create-job-queue\` makes others:<//>`
		}<//>
		${chosen && html`<h2 class=of>${text(chosen.name, 80)}</h2><div class=columns key=${chosen.name}><${Front} queue=${chosen.name} counts=${chosen.counts} told=${setFront} /><${Shares} queue=${chosen.name} /></div><${WhatIf} jobs=${front.filter(j => j.queue === chosen.name && j.share)} />`}`
}
