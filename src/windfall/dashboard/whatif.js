// What if: how more machines or another priority would change the starts and ends of the real jobs, played by the real
// scheduler.

import {useState} from "./vendor/hooks.js"
import {own, useAnswer} from "./api.js"
import {Job, Panel, Problem, Table, html, prose} from "./parts.js"
import {clock, count, cut, quoted, span} from "./words.js"

const ends = when => (when?.endAt ? clock(when.endAt, false) : "not known")
function gain({now, then}) {
	if (!now?.endAt || !then?.endAt) return "-"
	const by = now.endAt - then.endAt
	return Math.abs(by) < 1000 ? "the same" : `${span(Math.abs(by))} ${by > 0 ? "sooner" : "later"}`
}

export function WhatIf({jobs}) {
	const machines = (useAnswer("Machines", {}, {every: 0}).data?.machines ?? []).filter(m => m.id)
	const [asked, setAsked] = useState({type: "", count: 1, job: "", priority: 100})
	const [state, setState] = useState({})
	const set = change => setAsked({...asked, ...change})
	const type = asked.type || machines[0]?.id || "",
		job = asked.job || jobs[0]?.jobId
	const ask = async (change, command) => {
		setState({busy: true, command})
		try {
			setState({answer: await own("WhatIf", change), command})
		} catch (error) {
			setState({error, command})
		}
	}
	const more = event => {
		event.preventDefault()
		ask({addMachines: [{type, count: Number(asked.count)}]}, `windfall what-if --add-machines ${quoted(`${asked.count}x${type}`)}`)
	}
	const other = event => {
		event.preventDefault()
		ask({priorities: {[job]: Number(asked.priority)}}, `windfall what-if --priority ${quoted(job)}=${asked.priority}`)
	}
	const a = state.answer
	return html`<${Panel} title="What if" command=${state.command}>
		<form class=row onSubmit=${more}><label>there were <input type="number" min="1" max="1000" value=${asked.count} onInput=${e => set({count: e.target.value})} /></label>
			<label>more of <input list="machine-types" value=${type} onInput=${e => set({type: e.target.value})} /></label><datalist id="machine-types">${machines.map(m => html`<option value=${m.id}>${m.name ?? m.id}</option>`)}</datalist>
			<button disabled=${state.busy || !type}>play it</button></form>
		${
			jobs.length > 0 &&
			html`<form class=row onSubmit=${other}><label>job <select value=${job} onChange=${e => set({job: e.target.value})}>${jobs.map(j => html`<option value=${j.jobId}>${cut(j.jobName, 40)}</option>`)}</select></label>
			<label>had priority <input type="number" min="0" max="9999" value=${asked.priority} onInput=${e => set({priority: e.target.value})} /></label><button disabled=${state.busy}>play it</button></form>`
		}
		<div aria-live="polite">${state.busy && html`<p class=quiet>The scheduler plays both ways; it may take half a minute…</p>`}<${Problem} error=${state.error} />
		${
			a &&
			html`<p><b>${a.summary}</b></p>${a.notes.map(note => html`<p class=quiet>${prose(note)}</p>`)}
			${
				a.changed > 0 &&
				html`<${Table} label="what would change" rows=${a.jobs.filter(j => j.changed).slice(0, 20)} keyOf=${j => j.jobId} columns=${[
					["job", j => html`<${Job} id=${j.jobId} name=${j.jobName} />`, "grow"],
					["ends now", j => ends(j.now), "n"],
					["would end", j => ends(j.then), "n"],
					["that is", gain, "n"],
				]} />${a.changed > 20 && html`<p class=quiet>20 of ${count(a.changed, "job")} that change are shown.</p>`}`
			}${!a.complete && html`<p class=quiet>It was not played to its end: later ends are not known.</p>`}`
		}</div><//>`
}
