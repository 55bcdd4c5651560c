// What all views are made of: panels with age and command, states, names of jobs, bars, tables, dialogs. Strings of
// jobs are text nodes in <bdi>, so that no direction mark in them moves what stands beside.

import {h} from "./vendor/preact.js"
import {useEffect, useRef, useState} from "./vendor/hooks.js"
import htm from "./vendor/htm.js"
import {signal} from "./state.js"
import {link, refresh, tick, whoami} from "./api.js"
import {jobHref} from "./route.js"
import {STATES, clock, cut, num, quoted, span} from "./words.js"

export const html = htm.bind(h)

export function State({state, short}) {
	const [letter, sign, words] = STATES[state] ?? ["?", "?", state]
	return html`<span class="state s-${letter}" title=${state}><span aria-hidden="true">${sign}</span> ${short ? letter : html`<span class=words>${words}</span>`}</span>`
}

// A sentence of ours with commands between backticks.
export const prose = words => words.split("`").map((part, i) => (i % 2 ? html`<code>${part}</code>` : part))

// Canvases cannot read light-dark(): what a colour is now, its element says.
export const inkOf = element => name => ((element.style.color = `var(${name})`), getComputedStyle(element).color)

export const text = (words, max) => html`<bdi>${cut(String(words ?? "-"), max)}</bdi>`

export const Job = ({id, name, tab, q}) => html`<a href=${jobHref(id, tab, q)} title=${id}>${text(name || id, 60)}</a>`

export function Age({of}) {
	if (!of.at) return null
	// What a stream would have told is as new as the stream.
	const at = of.topic && link.value.streaming ? Math.max(of.at, link.value.heardAt) : of.at
	const age = Math.max(tick.value - at, 0)
	return html`<span class=age title="asked ${clock(at)}">${age < 1500 ? "now" : span(age) + " ago"}</span>`
}

export function Copy({text}) {
	const [done, setDone] = useState("")
	const copy = () =>
		navigator.clipboard.writeText(text).then(
			() => setDone("copied"),
			() => setDone("select it by hand"),
		)
	useEffect(() => {
		const timer = done && setTimeout(() => setDone(""), 2000)
		return () => clearTimeout(timer)
	}, [done])
	return html`<span class=copy><code tabindex="0">${text}</code><button onClick=${copy} aria-label="copy ${text}">${done || "copy"}</button></span>`
}

export const Command = ({line}) =>
	html`<details class=command><summary>as command</summary><${Copy} text=${line} /></details>`
export const jobCommand = (verb, id) => `windfall ${verb} ${quoted(id)}`

export function Problem({error, again}) {
	if (!error) return null
	const unknown =
		error.code === "UnknownOperationException" &&
		"The daemon is of another version than this page. Start it again with this version: jobs go on meanwhile."
	const next =
		error.code === "AccessDeniedException"
			? "This needs a session with more rights: `windfall dashboard --role submit`."
			: ""
	return html`<p class=problem role="alert"><b>!</b> ${prose(`${unknown || error.message} ${next}`)} ${again && html`<button onClick=${again}>try again</button>`}</p>`
}

// A part of a view: `of` is what useAnswer gave, `command` prints the same in a terminal.
export function Panel({title, of = {}, command, children, kind = "", actions}) {
	const loading = of.data === undefined && !of.error && of.at === 0 && of.again
	return html`<section class="panel ${kind}" aria-label=${title}>
		<header><h2>${title}</h2>${actions}<span class=grow /><${Age} of=${of} />${command && html`<${Command} line=${command} />`}</header>
		${
			of.error && of.data !== undefined
				? html`<p class=stale>This is what was seen ${clock(of.at)}: ${of.error.message}</p>`
				: html`<${Problem} error=${of.error} again=${of.again} />`
		}
		${loading ? html`<p class=quiet>asking…</p>` : of.data !== undefined || !of.again ? children : null}
	</section>`
}

export const Empty = ({children, command}) =>
	html`<div class=empty><p>${children}</p>${command && html`<${Copy} text=${command} />`}</div>`

// Parts of a whole: [[words, value, class]]. What the lengths show is also written.
export function Bar({parts, of, label}) {
	const whole = of ?? parts.reduce((sum, [, value]) => sum + value, 0)
	const words = label ?? parts.map(([name, value]) => `${name} ${num(value)}`).join(", ")
	return html`<span class=bar role="img" aria-label=${words} title=${words}>${parts.map(
		([, value, kind]) =>
			value > 0 && html`<i class=${kind} style=${{width: `${Math.min(100, (100 * value) / (whole || 1))}%`}} />`,
	)}</span>`
}

// columns: [head, cell of a row, class]; rows need a `key`.
export const Table = ({
	columns,
	rows,
	label,
	keyOf,
}) => html`<div class=scroll tabindex="0" role="group" aria-label=${label}><table>
	<thead><tr>${columns.map(([head, , kind]) => html`<th scope="col" class=${kind}>${head}</th>`)}</tr></thead>
	<tbody>${rows.map((row, at) => html`<tr key=${keyOf ? keyOf(row) : at} data-row>${columns.map(([, cell, kind]) => html`<td class=${kind}>${cell(row)}</td>`)}</tr>`)}</tbody>
</table></div>`

// The width of an element, kept up to date.
export function useWidth(ref) {
	const [width, setWidth] = useState(0),
		seen = useRef()
	useEffect(() => {
		if (!ref.current || ref.current === seen.current?.of) return
		seen.current?.disconnect()
		seen.current = new ResizeObserver(([entry]) => setWidth(Math.round(entry.contentRect.width)))
		seen.current.of = ref.current
		seen.current.observe(ref.current)
	})
	useEffect(() => () => seen.current?.disconnect(), [])
	return width
}

// ------------------------------------------------------------------------------------------------------ actions

// {title, text, role, command, act, done}; with a `body` also a value, which `command` and `act` are given.
export const dialog = signal(null)
const RANKS = ["read", "submit", "admin"]
export const may = role => RANKS.indexOf(whoami.value?.role) >= RANKS.indexOf(role)

export function Dialog() {
	const {title, text, role, command, act, done, body} = dialog.value
	const [value, setValue] = useState(dialog.value.value)
	const line = body ? command(value) : command
	const ref = useRef()
	const [state, setState] = useState({})
	useEffect(() => {
		ref.current.showModal()
	}, [])
	const close = () => (dialog.value = null)
	const run = async () => {
		setState({busy: true})
		try {
			const answer = await act(value)
			close()
			refresh()
			done?.(answer)
		} catch (error) {
			setState({error})
		}
	}
	return html`<dialog ref=${ref} onClose=${close} aria-label=${title}><h2>${title}</h2><p>${text}</p>
		${body?.(value, setValue)}
		${line && html`<p>The same in a terminal: <${Copy} text=${line} /></p>`}
		${!may(role) && html`<p class=stale>Your session may only ${whoami.value?.role}. Open one that may ${role}: <${Copy} text=${`windfall dashboard --role ${role}`} /></p>`}
		<${Problem} error=${state.error} />
		<div class=row><button onClick=${close}>cancel</button>${may(role) && html`<button class=danger disabled=${state.busy} onClick=${run}>${title}</button>`}</div></dialog>`
}
