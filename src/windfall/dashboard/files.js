// What a job has stored, as files: its newest checkpoint, its outputs, its logs. A file comes range by range, each
// signed like everything else, and becomes a download when it is whole.

import {useState} from "./vendor/hooks.js"
import {ownBytes, useAnswer} from "./api.js"
import {Copy, Panel, Table, text, html, jobCommand} from "./parts.js"
import {bytes, clock, num, percent} from "./words.js"

const PARTS = {checkpoint: "checkpoint", output: "output", log: "log"}
const keyOf = f => `${f.part} ${f.output} ${f.path}`

// The name alone: no folders, nothing that steers a terminal or turns the direction of text.
const safeName = path =>
	path
		.split("/")
		.at(-1)
		.replace(/[\p{C}"<>|?*:\\]/gu, "_")
		.slice(0, 200) || "file"

async function fetched(jobId, file, told) {
	const {part, output, path, content} = file,
		pieces = []
	for (let start = 0, failures = 0; ; ) {
		try {
			const piece = await ownBytes("ReadFile", {jobId, part, output, path, content, start})
			if (!piece.size) break
			pieces.push(piece)
			start += piece.size
			failures = 0
			told(start)
		} catch (error) {
			// A daemon that is away for a moment is waited for; what was read stays.
			if (![0, 503].includes(error.status) || ++failures > 20) throw error
			await new Promise(done => setTimeout(done, 2000))
		}
		if (part !== "log" && start >= file.bytes) break
	}
	return new Blob(pieces, {type: "application/octet-stream"})
}

function save(blob, name) {
	const link = document.createElement("a")
	link.href = URL.createObjectURL(blob)
	link.download = name
	link.click()
	setTimeout(() => URL.revokeObjectURL(link.href), 60000)
}

export function Files({page}) {
	const id = page.row.jobId,
		answer = useAnswer("ListFiles", {jobId: id}),
		d = answer.data
	const [busy, setBusy] = useState({})
	const get = async file => {
		const set = change => setBusy(old => ({...old, [keyOf(file)]: change}))
		set({at: 0})
		try {
			const blob = await fetched(id, file, at => set({at}))
			if (file.part !== "log" && blob.size !== file.bytes) throw new Error("it is not as long as it was; try again")
			save(blob, safeName(file.path))
			set({done: true})
		} catch (error) {
			set({error})
		}
	}
	const state = f => {
		const {at, done, error} = busy[keyOf(f)] ?? {}
		if (at != null) return html`<span role="status">${percent(f.bytes ? at / f.bytes : 1)}</span>`
		return html`<button onClick=${() => get(f)} aria-label="get ${f.path}">get</button>${done && " ✓"}${error && html` <b class=s-F>! ${error.message}</b>`}`
	}
	return html`<${Panel} title="Files" of=${answer} command=${jobCommand("get", id)} actions=${html`<button onClick=${answer.again}>again</button>`}>${
		d &&
		html`${d.problems.map(words => html`<p class=problem><b>!</b> ${words}</p>`)}
		${d.checkpoint && html`<p class=quiet>The checkpoint${d.checkpoint.step != null && ` of step ${num(d.checkpoint.step)}`} is safe since ${clock(d.checkpoint.at)}.</p>`}
		${
			d.files.length
				? html`<${Table} label="files" rows=${d.files} keyOf=${keyOf} columns=${[
						["file", f => text(f.path, 120), "grow"],
						["of", f => PARTS[f.part]],
						["size", f => bytes(f.bytes), "n"],
						["written", f => (f.changedAt ? clock(f.changedAt) : "-"), "n opt"],
						["get it", state],
					]} />`
				: html`<p class=quiet>It has stored nothing${page.row.arraySize ? "; its children have files of their own" : ""}.</p>`
		}
		${d.leftOut > 0 && html`<p class=quiet>left out: ${num(d.leftOut)}. All of them: <${Copy} text=${jobCommand("get", id)} /></p>`}`
	}<//>`
}
