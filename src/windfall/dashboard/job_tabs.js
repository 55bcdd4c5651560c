// The tabs of a job other than its log: why, cost, advice, checkpoints, definition with differences, events, JSON.

import {batch, useAnswer} from "./api.js"
import {moments, markWords} from "./lifeline.js"
import {Bar, Copy, Empty, Panel, Table, prose, text, html, jobCommand} from "./parts.js"
import {jobHref, route, setQuery} from "./route.js"
import {bytes, clock, count, cut, num, percent, span, usd} from "./words.js"

export function Why({page}) {
	const answer = useAnswer("Why", {jobId: page.row.jobId}, {every: 5000}),
		why = answer.data
	return html`<${Panel} title="Why it is where it is" of=${answer} command=${jobCommand("why", page.row.jobId)}>
		<ul>${why?.reasons.map(r => html`<li>${text(r.text, 600)}</li>`)}</ul>
		${why?.expectedAt && html`<p>It is expected to start about <b>${clock(why.expectedAt, false)}</b>.</p>`}
		${why?.changes.length > 0 && html`<h3>What would change it</h3><ul>${why.changes.map(line => html`<li>${prose(cut(line, 600))}</li>`)}</ul>`}
		${
			page.reasons?.length > 0 &&
			html`<h3>Over time</h3><${Table} label="reasons over time" rows=${page.reasons} columns=${[
				["from", r => clock(r.at)],
				["for", (r, i) => (r.untilAt ? span(r.untilAt - r.at) : "until now or its start"), "n"],
				["it waited because", r => text(r.text, 300)],
			]} />`
		}<//>`
}

export const PARTS = [
	["useful", "useful", "ok"],
	["checkpoint", "saving", "sm"],
	["lost", "lost", "failed"],
	["startUp", "starting", "busy"],
	["idle", "idle", "idle"],
]
export const barOf = values => PARTS.map(([name, words, kind]) => [words, values?.[name] ?? 0, kind])
export const Legend = () =>
	html`<ul class=legend>${PARTS.map(([, words, kind]) => html`<li><i class=${kind} />${words}</li>`)}</ul>`

export function Costs({page}) {
	const answer = useAnswer("Cost", {jobId: page.row.jobId}, {every: page.row.stoppedAt ? 0 : 10000}),
		cost = answer.data
	const of = cost?.attempts?.filter(a => a.number != null) ?? []
	return html`<${Panel} title="What it cost" of=${answer} command="${jobCommand("cost", page.row.jobId)}">${
		cost &&
		html`
		<p><b>${usd(cost.total.paidUsd)}</b> paid${cost.total.onDemandUsd > cost.total.paidUsd ? ` of ${usd(cost.total.onDemandUsd)} on demand: ${num(cost.total.savedPercent)} % saved` : ""}. Held for ${span(Object.entries(cost.total.ms).reduce((sum, [name, ms]) => sum + (name === "waiting" ? 0 : ms), 0))}, waited ${span(cost.total.ms.waiting)}.${cost.budgetUsd ? ` Its budget is ${usd(cost.budgetUsd)}.` : ""}</p>
		<${Legend} />${
			of.length > 0 &&
			html`<${Table} label="cost of each attempt" rows=${of} columns=${[
				["try", a => a.number, "n"],
				["on", a => a.instanceType ?? a.instance],
				["market", a => a.market, "opt"],
				["$ per hour", a => usd(a.usdHour), "n opt"],
				[
					"what its time went into",
					a => html`<${Bar} parts=${barOf(a.ms)} label=${PARTS.map(([n, w]) => `${w} ${span(a.ms[n])}`).join(", ")} />`,
					"grow",
				],
				...PARTS.map(([name, words]) => [words, a => span(a.ms[name]), "n opt"]),
				["paid", a => usd(a.paidUsd), "n"],
			]} />`
		}
		${cost.total.paidUsd === 0 && html`<p class=quiet>Your own hardware has no price unless you give it one: usd_gpu_hour and usd_vcpu_hour in windfall.toml.</p>`}`
	}<//>`
}

export function AdviceCard({row}) {
	return html`<article class=advice><h3>${row.cause ? `Limited by ${row.cause}` : "No cause is known"}${row.busy != null ? ` · GPU busy ${percent(row.busy)}` : ""}${row.confidence ? ` · ${percent(row.confidence)} sure` : ""}</h3>
		${row.meaning && html`<p>${row.meaning}</p>`}${row.note && html`<p class=quiet>Nothing can be said: ${row.note}.</p>`}
		${row.advice.length > 0 && html`<ul>${row.advice.map(a => html`<li><b>${a.text}</b>${a.timeFactor ? ` Time: × ${num(a.timeFactor)}.` : ""}${a.usdJob != null ? ` Price of the job: ${usd(a.usdJob)}.` : ""}${a.assumptions?.length ? html` <small>Supposes: ${[].concat(a.assumptions).join("; ")}.</small>` : ""}</li>`)}</ul>`}
		${row.evidence.length > 0 && html`<details><summary>evidence</summary><ul>${row.evidence.map(e => html`<li>${e}</li>`)}</ul></details>`}
		${row.missing.length > 0 && html`<details><summary>what is missing to be surer</summary><ul>${row.missing.map(m => html`<li>${m.what}: ${m.how}</li>`)}</ul></details>`}
		${row.noHelp.length > 0 && html`<p class=quiet>Would not help: ${row.noHelp.join("; ")}.</p>`}</article>`
}

export function Advice({page}) {
	const answer = useAnswer("Advise", {jobId: page.row.jobId}, {every: 0}),
		row = answer.data?.jobs[0]
	return html`<${Panel} title="What limits it, and what would help" of=${answer} command=${jobCommand("advise", page.row.jobId)} actions=${html`<button onClick=${answer.again}>again</button>`}>${row && html`<${AdviceCard} row=${row} />`}<//>`
}

export function Checkpoints({page}) {
	const marks = page.attempts
		.flatMap(a =>
			(a.marks ?? []).map(([at, stateAt, step, size]) => ({at, stateAt, step, bytes: size, attempt: a.number})),
		)
		.reverse()
	const restored = page.attempts.filter(a => a.restored)
	return html`${page.checkpointUri && html`<p>Kept at <code>${text(page.checkpointUri, 200)}</code></p>`}
		${
			marks.length
				? html`<${Table} label="checkpoints" rows=${marks} columns=${[
						["safe at", m => clock(m.at)],
						["state of", m => clock(m.stateAt)],
						["try", m => m.attempt, "n"],
						["step", m => num(m.step), "n"],
						["size", m => bytes(m.bytes), "n"],
					]} />`
				: html`<${Empty} command="windfall run --spot --checkpoint -- python train.py">It keeps no checkpoint${page.checkpointUri ? " yet" : ""}. What a program writes below $WINDFALL_CHECKPOINT_DIR is kept and restored with:<//>`
		}
		${restored.map(a => html`<p>Attempt ${a.number} went on from ${markWords(a.restored)}.</p>`)}
		<p><a href=${jobHref(page.row.jobId, "files")}>The files of the newest one</a></p>`
}

// Lines of two texts: [sign, line]; the longest common part stays.
export function difference(before, after) {
	const a = before.split("\n"),
		b = after.split("\n"),
		lengths = Array.from({length: a.length + 1}, () => new Uint16Array(b.length + 1))
	for (let i = a.length - 1; i >= 0; i--)
		for (let j = b.length - 1; j >= 0; j--)
			lengths[i][j] = a[i] === b[j] ? lengths[i + 1][j + 1] + 1 : Math.max(lengths[i + 1][j], lengths[i][j + 1])
	const lines = []
	for (let i = 0, j = 0; i < a.length || j < b.length;) {
		if (i < a.length && j < b.length && a[i] === b[j]) (lines.push([" ", a[i++]]), j++)
		else if (j < b.length && (i >= a.length || lengths[i][j + 1] >= lengths[i + 1][j])) lines.push(["+", b[j++]])
		else lines.push(["-", a[i++]])
	}
	return lines
}

const written = value => JSON.stringify(value, null, 2) ?? ""
export function Definition({page}) {
	const [name] = (page.row.definition ?? "").replace(/^.*job-definition\//, "").split(":")
	const answer = useAnswer(
		name ? "DescribeJobDefinitions" : null,
		{jobDefinitionName: name, maxResults: 100},
		{through: batch},
	)
	const described = useAnswer("DescribeJobs", {jobs: [page.row.jobId]}, {through: batch})
	const revisions = (answer.data?.jobDefinitions ?? []).sort((a, b) => b.revision - a.revision)
	const mine = Number((page.row.definition ?? "").split(":").at(-1)),
		other = Number(route.value.q.rev) || revisions.find(r => r.revision < mine)?.revision
	const text = revision => {
		const {jobDefinitionArn, revision: _, status, ...rest} = revisions.find(r => r.revision === revision) ?? {}
		return written(rest)
	}
	const command = described.data?.jobs[0]?.container?.command
	return html`${command && html`<h3>Command</h3><pre tabindex="0">${command.join(" ").slice(0, 5000)}</pre>`}
		${
			name
				? html`<${Panel} title="Definition ${name} revision ${mine || ""}" of=${answer} command="aws batch describe-job-definitions --job-definition-name ${name}" actions=${revisions.length > 1 && html`<label>differences to <select value=${other ?? ""} onChange=${e => setQuery({rev: e.target.value})}>${revisions.filter(r => r.revision !== mine).map(r => html`<option value=${r.revision}>revision ${r.revision}</option>`)}</select></label>`}>
			<pre class=diff tabindex="0">${other && text(other) ? difference(text(other), text(mine)).map(([sign, line]) => html`<span class=${{"+": "plus", "-": "minus"}[sign]}>${sign} ${line}${"\n"}</span>`) : text(mine)}</pre><//>`
				: html`<p class=quiet>It was submitted without a named definition.</p>`
		}`
}

export const Events = ({page, at}) =>
	html`<${Table} label="events, newest first" rows=${moments(page, at).slice(0, 300)} columns=${[
		["when", m => clock(m.at)],
		["try", m => m.attempt ?? "-", "n"],
		["what", m => m.what],
		["for", m => (m.length == null ? "" : span(m.length)), "n opt"],
		["more", m => text(m.words, 300), "grow"],
	]} />`

export function Json({page}) {
	const described = useAnswer("DescribeJobs", {jobs: [page.row.jobId]}, {through: batch})
	const text = written({page, described: described.data?.jobs[0]})
	return html`<${Panel} title="JSON" of=${described} command="aws batch describe-jobs --jobs ${page.row.jobId}"><pre tabindex="0">${text.slice(0, 200000)}</pre>${text.length > 200000 && html`<p>left out: ${count(text.length - 200000, "character")}</p>`}<//>`
}
