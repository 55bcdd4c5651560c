// An array as cells: 10,000 children on one canvas, moved over by keys, with the failed ones as a table.

import {useEffect, useRef} from "./vendor/hooks.js"
import {own, useAnswer} from "./api.js"
import {Panel, State, Table, dialog, html, inkOf, jobCommand, useWidth} from "./parts.js"
import {Progress, jobColumns} from "./jobs.js"
import {go, jobHref, route, setQuery} from "./route.js"
import {LETTERS, count, num} from "./words.js"

const SHAPES = {S: 0.3, P: 0.4, W: 0.5, T: 0.8, R: 1, O: 1, F: 1}

function paint(canvas, map, columns, cell, chosen) {
	const colour = inkOf(canvas),
		ratio = devicePixelRatio || 1,
		rows = Math.ceil(map.length / columns)
	canvas.width = columns * cell * ratio
	canvas.height = rows * cell * ratio
	canvas.style.width = `${columns * cell}px`
	const pen = canvas.getContext("2d"),
		colours = {}
	pen.scale(ratio, ratio)
	for (let i = 0; i < map.length; i++) {
		const letter = map[i],
			size = (cell - 1) * SHAPES[letter],
			x = (i % columns) * cell,
			y = Math.floor(i / columns) * cell
		pen.fillStyle = colours[letter] ??= colour(`--s-${letter}`)
		pen.fillRect(x + (cell - 1 - size) / 2, y + (cell - 1 - size) / 2, size, size)
		if (letter === "F" && cell > 4) {
			// A cross, so that colour is not all that tells it.
			pen.strokeStyle = colour("--paper")
			pen.lineWidth = 1
			pen.beginPath()
			;(pen.moveTo(x + 1, y + 1),
				pen.lineTo(x + cell - 2, y + cell - 2),
				pen.moveTo(x + cell - 2, y + 1),
				pen.lineTo(x + 1, y + cell - 2))
			pen.stroke()
		}
	}
	if (chosen >= 0)
		((pen.strokeStyle = colour("--ink")),
			(pen.lineWidth = 2),
			pen.strokeRect((chosen % columns) * cell, Math.floor(chosen / columns) * cell, cell, cell))
}

export function ArrayCells({id}) {
	const answer = useAnswer("ArrayMap", {jobId: id}, {every: 3000, topic: "array:" + id})
	const ref = useRef(),
		box = useRef(),
		width = useWidth(box)
	const map = answer.data?.map ?? "",
		q = route.value.q
	const chosen = q.child == null ? -1 : Math.min(Number(q.child), map.length - 1)
	const cell = map.length > 2000 ? Math.max(4, Math.min(9, Math.floor(width / 125))) : 14
	const columns = Math.max(1, Math.floor(width / cell))
	useEffect(() => {
		if (width && map) paint(ref.current, map, columns, cell, chosen)
	}, [width, map, chosen])
	const pick = child => child >= 0 && child < map.length && setQuery({child})
	const failed = () => {
		const next = map.indexOf("F", chosen + 1)
		pick(next < 0 ? map.indexOf("F") : next)
	}
	const keys = event => {
		const steps = {ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns}
		if (event.key in steps) pick(Math.max(0, chosen) + (chosen < 0 ? 0 : steps[event.key]))
		else if (event.key === "f") failed()
		else if (event.key === "Enter" && chosen >= 0) go("job", `${id}:${chosen}`)
		else return
		event.preventDefault()
		event.stopPropagation()
	}
	const click = event => pick(Math.floor(event.offsetY / cell) * columns + Math.floor(event.offsetX / cell))
	const bad = answer.data?.summary.FAILED ?? 0
	return html`<${Panel} title="Children" of=${answer} command="windfall jobs --array ${id}" actions=${html`<span class=chips><button disabled=${!bad} onClick=${failed}>next failed ( f )</button>
			<button disabled=${!bad} aria-pressed=${q.failed === "1"} onClick=${() => setQuery({failed: q.failed === "1" ? "" : 1})}>failed as table</button>
			<button disabled=${!bad} onClick=${() => (dialog.value = {title: "retry the failed", role: "submit", command: jobCommand("retry", id), text: `Submits the ${count(bad, "failed child", "failed children")} again as a new array, each with its index. They go on from their checkpoints.`, act: () => own("Retry", {jobId: id}), done: a => go("job", a.jobId)})}>retry the failed</button></span>`}>
		<div ref=${box}>${
			answer.data &&
			html`<p><${Progress} summary=${answer.data.summary} size=${answer.data.size} /></p>
			<canvas ref=${ref} class=cells tabindex="0" role="application" aria-label="${count(map.length, "child", "children")}: arrow keys move, f goes to the next failed, Enter opens" onKeyDown=${keys} onClick=${click} />
			<p role="status">${chosen >= 0 ? html`child ${num(chosen)} <${State} state=${LETTERS[map[chosen]]} /> <a href=${jobHref(`${id}:${chosen}`)}>open</a> <a href=${jobHref(`${id}:${chosen}`, "log")}>log</a>` : html`<small>Click a cell, or use the arrow keys.</small>`}</p>`
		}</div>
		${q.failed === "1" && html`<${Failed} id=${id} />`}<//>`
}

function Failed({id}) {
	const answer = useAnswer("Jobs", {parent: id, states: ["FAILED"], limit: 200}, {every: 5000})
	const rows = answer.data?.rows ?? []
	return html`<${Panel} title="Failed children" of=${answer} command="windfall jobs --array ${id} --state FAILED"><${Table} label="failed children" rows=${rows} keyOf=${r => r.jobId} columns=${[
		["child", r => html`<a href=${jobHref(r.jobId)}>${r.jobId.split(":")[1]}</a>`, "n"],
		...jobColumns.filter(([head]) => ["ran", "tries", "how it stands"].includes(head)),
	]} />
		${answer.data?.next && html`<p class=quiet>The first 200 are shown.</p>`}<//>`
}
