// Cost: what did it cost, and what of that was for nothing?

import {useAnswer} from "./api.js"
import {AdviceCard, Legend, PARTS, barOf} from "./job_tabs.js"
import {Bar, Empty, Job, Panel, Table, text, html} from "./parts.js"
import {route, setQuery} from "./route.js"
import {count, num, percent, quoted, span, usd} from "./words.js"

const DAYS = {1: "1 d", 7: "7 d", 30: "30 d", 365: "1 y"}
const GROUPS = ["queue", "user", "day", "job", "tenant"]
const hours = ms => (ms < 36e6 ? span(ms) : `${num(ms / 36e5)} h`)

// From the on-demand price down to what was paid, and what that was spent on.
function Waterfall({total, money}) {
	const held = PARTS.reduce((sum, [name]) => sum + total.ms[name], 0),
		write = money ? usd : hours
	const value = name => (money ? total.usd[name] : total.ms[name])
	const whole = money ? Math.max(total.onDemandUsd, total.paidUsd) : held
	const steps = []
	if (money)
		steps.push(
			["on-demand price", total.onDemandUsd, 0, "od"],
			["saved by spot", total.onDemandUsd - total.paidUsd, total.paidUsd, "saved"],
			["paid", total.paidUsd, 0, "paid"],
		)
	else steps.push(["held", held, 0, "paid"])
	let at = money ? total.paidUsd : held
	for (const [name, words, kind] of PARTS.toReversed()) steps.push([words, value(name), (at -= value(name)), kind])
	return html`<table class=waterfall><tbody>${steps.map(([words, size, from, kind]) => html`<tr><th scope="row">${words}</th><td class=n>${write(size)}</td><td class=n>${percent(whole ? size / whole : 0)}</td><td class=grow><span class=fall><i class=${kind} style=${{marginLeft: `${(100 * Math.max(0, from)) / (whole || 1)}%`, width: `${(100 * size) / (whole || 1)}%`}} /></span></td></tr>`)}</tbody></table>`
}

export function Cost() {
	const q = route.value.q,
		by = q.by || "queue",
		days = Number(q.days) || 7
	const since = Math.floor(Date.now() / 36e5) * 36e5 - days * 864e5
	const cost = useAnswer("Cost", {by, sinceAt: since}),
		advise = useAnswer("Advise", {sinceAt: since})
	const d = cost.data,
		money = q.unit ? q.unit === "usd" : d?.total.paidUsd > 0
	const tag = by.startsWith("tag:") ? by.slice(4) : ""
	const wasted = (advise.data?.jobs ?? []).filter(j => j.wastedGpuHours > 0)
	const held = row => PARTS.reduce((sum, [name]) => sum + row.ms[name], 0)
	return html`<h1>Cost</h1><div class=filters role="group" aria-label="filters"><span class=chips>${Object.entries(DAYS).map(([n, words]) => html`<button aria-pressed=${days === +n} onClick=${() => setQuery({days: n})}>${words}</button>`)}</span>
			<span class=chips>${GROUPS.map(name => html`<button aria-pressed=${by === name} onClick=${() => setQuery({by: name})}>by ${name}</button>`)}</span><label>by tag <input defaultValue=${tag} placeholder="team" onChange=${e => setQuery({by: e.target.value ? "tag:" + e.target.value : ""})} /></label>
			<span class=chips><button aria-pressed=${!!money} onClick=${() => setQuery({unit: "usd"})}>$</button><button aria-pressed=${!money} onClick=${() => setQuery({unit: "hours"})}>hours</button></span></div>
		<${Panel} title="From price to use" of=${cost} command="windfall cost --since ${days}d --by ${quoted(by)}" actions=${html`<button onClick=${cost.again}>again</button>`}>
			${
				d &&
				(d.total.attempts
					? html`<p>${count(d.total.jobs, "job")} with ${count(d.total.attempts, "attempt")}, ${hours(d.total.gpuMs)} of GPU and ${hours(d.total.vcpuMs)} of vCPU. ${d.total.unpricedMs > 0 && money ? `${hours(d.total.unpricedMs)} have no price.` : ""}${d.truncated ? " More jobs were left out." : ""}</p><${Waterfall} total=${d.total} money=${money} />
				${!money && !d.total.paidUsd && html`<p class=quiet>Your own hardware has no price unless you give it one: usd_gpu_hour and usd_vcpu_hour in windfall.toml.</p>`}`
					: html`<${Empty} command="windfall run --gpus 1 -- python train.py">No job has run in this time. Run one, and its seconds are told apart here:<//>`)
			}<//>
		${
			d?.rows.length > 0 &&
			html`<${Panel} title="By ${by}" of=${cost}><${Legend} /><${Table} label="cost by ${by}" rows=${d.rows.slice(0, 100)} columns=${[
				[
					tag ? "tag " + tag : by,
					r =>
						by === "job" && r.key
							? html`<${Job} id=${r.key} name=${r.name} tab="cost" />`
							: text(r.key ?? r.name ?? "without", 60),
				],
				["jobs", r => num(r.jobs), "n opt"],
				[
					"what its time went into",
					r =>
						html`<${Bar} parts=${barOf(r.ms)} label=${PARTS.map(([n, w]) => `${w} ${hours(r.ms[n])}`).join(", ")} />`,
					"grow",
				],
				["useful", r => percent(held(r) ? r.ms.useful / held(r) : null), "n"],
				["GPU hours", r => num(r.gpuMs / 36e5), "n opt"],
				["saved", r => (r.savedPercent == null ? "-" : `${num(r.savedPercent)} %`), "n opt"],
				money ? ["paid", r => usd(r.paidUsd), "n"] : ["held", r => hours(held(r)), "n"],
			]} />
			${d.rows.length > 100 && html`<p class=quiet>left out: ${num(d.rows.length - 100)}</p>`}<//>`
		}
		<${Panel} title="Wasted GPU hours, the most first" of=${advise} command="windfall advise --since ${days}d">${
			wasted.length
				? wasted
						.slice(0, 20)
						.map(
							row =>
								html`<section class=wasted key=${row.jobId}><p><b>${num(row.wastedGpuHours)} GPU h</b> of ${num(row.gpuHours)} in <${Job} id=${row.jobId} name=${row.jobName} tab="advice" /></p><${AdviceCard} row=${row} /></section>`,
						)
				: html`<p class=quiet>${advise.data ? "✓ No job with a GPU wasted any that was measured." : ""}</p>`
		}<//>`
}
