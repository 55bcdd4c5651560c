// Curves over one time axis with one cursor, drawn on canvases: each is {name, at, lines, band, write, max, limit,
// note}. `lines` are values at the times `at`, null where nothing is known; with `band`, they are mean, minimum and
// maximum. What a picture shows is also said as text. Decides looks; knows no operation.

import {useEffect, useRef, useState} from "./vendor/hooks.js"
import {signal} from "./state.js"
import {html, inkOf, useWidth} from "./parts.js"
import {clock, span} from "./words.js"

export const cursor = signal(null) // the time under the pointer, for all curves and the life line
export const LEFT = 62 // where the time axis begins
const HEIGHT = 84,
	BOTTOM = 16,
	TOP = 5
const dark = matchMedia("(prefers-color-scheme: dark)")
const scheme = signal(dark.matches)
dark.addEventListener("change", () => (scheme.value = dark.matches))

// The axis that life line and curves share: from times to pixels and back.
export const axis = (from, to, width) => ({
	x: at => LEFT + ((at - from) / (to - from || 1)) * (width - LEFT),
	at: x => from + ((x - LEFT) / (width - LEFT || 1)) * (to - from),
})

const STEPS = [
	1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800,
].map(s => s * 1000)
export function timeTicks(from, to, width) {
	const step = STEPS.find(ms => ((to - from) / ms) * 90 < width - LEFT) ?? 2592e6,
		zone = new Date(from).getTimezoneOffset() * 60000
	const ticks = []
	for (let at = Math.ceil((from - zone) / step) * step + zone; at <= to; at += step)
		ticks.push([
			at,
			step >= 864e5
				? clock(at, false).slice(5, 10) || clock(at, false)
				: clock(at, step < 60000).slice(-(step < 60000 ? 8 : 5)),
		])
	return ticks
}

function top(value) {
	const size = 10 ** Math.floor(Math.log10(value)),
		head = value / size
	return size * (head <= 1 ? 1 : head <= 2 ? 2 : head <= 5 ? 5 : 10)
}

const known = line => line.filter(value => value != null)
function extent({lines, max, limit}) {
	let low = 0,
		high = max ?? 0
	for (const line of lines)
		for (const value of line) if (value != null) ((low = Math.min(low, value)), (high = Math.max(high, value)))
	// A limit that is far away would press the curve flat.
	if (limit && limit < high * 8) high = Math.max(high, limit)
	return [low, max && high <= max ? max : top(high || 1)]
}

function summary({name, lines, write}) {
	const values = known(lines[0])
	if (!values.length) return `${name}: nothing was measured`
	const ends = values.reduce(([low, high], v) => [Math.min(low, v), Math.max(high, v)], [values[0], values[0]])
	return `${name}: last ${write(values.at(-1))}, mean ${write(values.reduce((a, b) => a + b, 0) / values.length)}, from ${write(ends[0])} to ${write(ends[1])}`
}

function draw(canvas, curve, from, to, width) {
	const ratio = devicePixelRatio || 1,
		colour = inkOf(canvas),
		pen = canvas.getContext("2d")
	canvas.width = width * ratio
	canvas.height = HEIGHT * ratio
	pen.scale(ratio, ratio)
	const {x} = axis(from, to, width),
		[low, high] = extent(curve),
		floor = HEIGHT - BOTTOM,
		y = v => floor - ((v - low) / (high - low)) * (floor - TOP)
	pen.font = "11px system-ui, sans-serif"
	pen.lineWidth = 1
	const rule = (x1, y1, x2, y2, kind) => (
		(pen.strokeStyle = colour(kind)),
		pen.beginPath(),
		pen.moveTo(x1, y1),
		pen.lineTo(x2, y2),
		pen.stroke()
	)
	pen.fillStyle = colour("--quiet")
	pen.textAlign = "right"
	for (const value of [low, (low + high) / 2, high])
		(rule(LEFT, Math.round(y(value)) + 0.5, width, Math.round(y(value)) + 0.5, "--grid"),
			pen.fillText(curve.write(value), LEFT - 6, y(value) + 4))
	pen.textAlign = "center"
	for (const [at, words] of timeTicks(from, to, width))
		if (x(at) > LEFT + 20 && x(at) < width - 24) pen.fillText(words, x(at), HEIGHT - 3)
	pen.save()
	pen.beginPath()
	pen.rect(LEFT, 0, width - LEFT, floor + 1)
	pen.clip()
	const path = line => {
		pen.beginPath()
		let on = false
		line.forEach((value, i) =>
			value == null
				? (on = false)
				: (on ? pen.lineTo(x(curve.at[i]), y(value)) : pen.moveTo(x(curve.at[i]), y(value)), (on = true)),
		)
	}
	if (curve.band) {
		const [, mins, maxs] = curve.lines
		pen.fillStyle = colour("--band")
		for (let i = 1; i < curve.at.length; i++) {
			if ([mins[i], maxs[i], mins[i - 1], maxs[i - 1]].includes(null)) continue
			;(pen.beginPath(),
				pen.moveTo(x(curve.at[i - 1]), y(mins[i - 1])),
				pen.lineTo(x(curve.at[i]), y(mins[i])),
				pen.lineTo(x(curve.at[i]) + 0.5, y(maxs[i])),
				pen.lineTo(x(curve.at[i - 1]), y(maxs[i - 1])),
				pen.fill())
		}
	}
	;(curve.band ? curve.lines.slice(0, 1) : curve.lines).forEach((line, i) => {
		path(line)
		pen.strokeStyle = colour(`--line${i + 1}`)
		pen.lineWidth = 1.5
		pen.setLineDash(i ? [5, 3] : [])
		pen.stroke()
	})
	if (curve.limit && curve.limit <= high)
		(pen.setLineDash([2, 4]), rule(LEFT, y(curve.limit), width, y(curve.limit), "--ink"))
	pen.restore()
}

function nearest(times, ms) {
	let low = 0,
		high = times.length - 1
	while (low < high) {
		const middle = (low + high) >> 1
		times[middle] < ms ? (low = middle + 1) : (high = middle)
	}
	return high < 0 || Math.abs(times[low] - ms) > Math.max(60000, (times.at(-1) - times[0]) / 50) ? -1 : low
}

function Reading({curve}) {
	const at = cursor.value == null ? -1 : nearest(curve.at, cursor.value)
	const shown = curve.lines.map(line => (at < 0 ? known(line).at(-1) : line[at]))
	const words = value => (value == null ? "-" : curve.write(value))
	return html`<span>${curve.band ? html`${words(shown[0])} <small>${words(shown[1])} to ${words(shown[2])}</small>` : shown.map((value, i) => html`${i ? " / " : ""}${words(value)}`)}</span>${curve.note && html`<small>${curve.note}</small>`}`
}

// Follows the pointer over anything with this axis; dragging chooses a span.
export function usePointer(ref, from, to, width, onZoom) {
	const [start, setStart] = useState(null)
	const at = event => axis(from, to, width).at(Math.max(LEFT, event.clientX - ref.current.getBoundingClientRect().left))
	return {
		start,
		handlers: {
			onPointerMove: event => (cursor.value = at(event)),
			onPointerLeave: () => (cursor.value = null),
			onPointerDown: event => event.button === 0 && onZoom && setStart(at(event)),
			onPointerUp: event => {
				const end = at(event)
				if (start != null && Math.abs(end - start) > (to - from) / 80)
					onZoom(Math.min(start, end), Math.max(start, end))
				setStart(null)
			},
		},
	}
}

function Curve({curve, from, to, onZoom}) {
	const ref = useRef(),
		canvas = useRef(),
		width = useWidth(ref)
	const {start, handlers} = usePointer(ref, from, to, width, onZoom)
	useEffect(() => {
		if (width) draw(canvas.current, curve, from, to, width)
	}, [width, scheme.value, from, to, curve.at.length, curve.at.at(-1), curve.lines[0].at(-1)])
	return html`<figure class=curve><figcaption><b>${curve.name}</b> <${Reading} curve=${curve} /></figcaption>
		<div ref=${ref} class=plot role="img" aria-label=${summary(curve)} ...${handlers}><canvas ref=${canvas} style=${{width: `${width}px`, height: `${HEIGHT}px`}} /><${Cursor} from=${from} to=${to} width=${width} start=${start} /></div></figure>`
}

export function Cursor({from, to, width, start}) {
	const at = cursor.value
	if (at == null || at < from || at > to || !width) return null
	const {x} = axis(from, to, width)
	return html`${start != null && html`<i class=span style=${{left: `${Math.min(x(start), x(at))}px`, width: `${Math.abs(x(at) - x(start))}px`}} />`}<i class=cursor style=${{left: `${x(at)}px`}} />`
}

export const Curves = ({
	curves,
	from,
	to,
	onZoom,
}) => html`<div class=curves>${curves.map(curve => html`<${Curve} key=${curve.name} curve=${curve} from=${from} to=${to} onZoom=${onZoom} />`)}
	<p class=sr>The time axis runs from ${clock(from)} over ${span(to - from)}.</p></div>`
