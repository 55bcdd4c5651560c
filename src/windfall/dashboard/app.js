// The shell: login, top bar with the lamp, keys, help, search, and which view is shown.

import {render} from "./vendor/preact.js"
import {useEffect, useRef, useState} from "./vendor/hooks.js"
import {drawnBy, signal} from "./state.js"
import {introduce, leave, link, notice, own, session, tick, watchAgain, whoami} from "./api.js"
import {Copy, Dialog, Problem, dialog, html, prose} from "./parts.js"
import {go, href, jobHref, route} from "./route.js"
import {fromFragment, keep, kept, sessionOf} from "./sign.js"
import {clock, span} from "./words.js"
import {Cost} from "./cost.js"
import {JobView} from "./job.js"
import {Jobs} from "./jobs.js"
import {Machines} from "./machines.js"
import {Now} from "./now.js"
import {Queues} from "./queues.js"
import {Schedules} from "./schedules.js"

const VIEWS = {
	now: ["Now", Now, "n"],
	jobs: ["Jobs", Jobs, "j"],
	queues: ["Queues", Queues, "q"],
	cost: ["Cost", Cost, "c"],
	schedules: ["Schedules", Schedules, "s"],
	machines: ["Machines", Machines, "m"],
}
const help = signal(false)
const keysOn = signal(localStorage.getItem("keys") !== "off")

function Lamp() {
	const {up, heardAt, streaming, words} = link.value
	const age = Math.max(0, tick.value - heardAt)
	const kind = up === false ? "bad" : age > 20000 ? "late" : "good"
	const text =
		up === false
			? `not connected, last seen ${heardAt ? clock(heardAt) : "never"}`
			: `${streaming ? "live" : "asking"} · ${age < 1500 ? "now" : span(age) + " ago"}`
	return html`<span class="lamp ${kind}" title=${words}>
		<i aria-hidden="true">${{good: "●", late: "◐", bad: "✗"}[kind]}</i> <span>${text}</span></span>`
}

function Search() {
	const [found, setFound] = useState(null)
	const find = async event => {
		event.preventDefault()
		const text = event.target.elements.text.value.trim()
		if (!text) return
		try {
			const {jobIds} = await own("FindJobs", {text})
			if (jobIds.length === 1) go("job", jobIds[0])
			else if (jobIds.length) go("jobs", "", "", {name: text})
			else setFound(`No job has this name or an id that begins so.`)
			if (jobIds.length) (setFound(null), event.target.reset(), document.activeElement?.blur())
		} catch (error) {
			setFound(error.message)
		}
	}
	return html`<form class=search role="search" onSubmit=${find}>
		<input name="text" id="search" placeholder="find a job ( / )" aria-label="find a job by name or id" maxlength="200" />
		${found && html`<p role="status">${found} <button type="button" onClick=${() => setFound(null)}>ok</button></p>`}</form>`
}

function TopBar() {
	const me = whoami.value,
		here = route.value.view
	return html`<header class=top><a class=brand href="#/now"><img src="icon.svg" alt="" width="22" height="22" />Windfall</a>
		<nav aria-label="views">${Object.entries(VIEWS).map(
			([name, [title]]) =>
				html`<a href=${href(name)} aria-current=${here === name || (name === "jobs" && here === "job") ? "page" : null}>${title}</a>`,
		)}</nav>
		<${Search} /><${Lamp} />
		<details class=me><summary>${me?.name || "key"} · ${me?.role}</summary><div>
			<p>Key ${me?.accessKeyId}, tenant ${me?.tenant}. ${me?.expiresAt ? `The session ends ${clock(me.expiresAt, false)}.` : ""}</p>
			<p>Windfall ${me?.version}, up since ${clock(me?.startedAt, false)}.</p>
			<label><input type="checkbox" checked=${keysOn.value} onChange=${e => (localStorage.setItem("keys", e.target.checked ? "on" : "off"), (keysOn.value = e.target.checked))} /> single keys</label>
			<div class=row><button onClick=${() => (help.value = true)}>keys ( ? )</button><button onClick=${() => leave("You signed out.")}>sign out</button></div></div></details></header>`
}

function Login() {
	const [state, setState] = useState({})
	const enter = async event => {
		event.preventDefault()
		const {id, secret, role} = event.target.elements
		setState({busy: true})
		try {
			const key = await sessionOf({accessKeyId: id.value.trim(), secretAccessKey: secret.value.trim()})
			await begin(await own("CreateSession", {role: role.value, hours: 12}, {as: key}))
		} catch (error) {
			setState({error})
		}
		secret.value = ""
	}
	return html`<main class=login><h1><img src="icon.svg" alt="" width="32" height="32" /> Windfall</h1>
		${notice.value && html`<p class=stale role="status">${notice.value}</p>`}
		${
			!window.isSecureContext
				? html`<section><h2>This address cannot be used to sign in</h2><p>Browsers sign requests only on pages that came by TLS or from this very machine. Forward the port and open the page there:</p>
					<${Copy} text=${`ssh -L 8470:127.0.0.1:${location.port || 80} ${location.hostname}`} /><p>then <code>http://127.0.0.1:8470/ui/</code>. Or put TLS in front.</p></section>`
				: html`<section><h2>Open it from a terminal</h2><p>This makes a read-only session of a few hours and opens the page with it. No key enters the browser.</p><${Copy} text="windfall dashboard" /></section>
				<section><h2>Or sign in with a key</h2><form onSubmit=${enter}>
					<label>Key id <input name="id" required autocomplete="username" spellcheck=${false} /></label>
					<label>Secret <input name="secret" type="password" required autocomplete="off" /></label>
					<label>For <select name="role"><option value="read">looking</option><option value="submit">looking and changing jobs</option><option value="admin">everything</option></select></label>
					<button disabled=${state.busy}>sign in</button></form>
					<p class=quiet>The key only makes a session of 12 hours and is forgotten. <code>windfall keys list</code> shows ids; <code>windfall env</code> prints yours.</p>
					<${Problem} error=${state.error} /></section>`
		}</main>`
}

const KEYS = [
	["?", "this help"],
	["/", "find a job; in a log: search in it"],
	["g then n j q c s m", "Now, Jobs, Queues, Cost, Schedules, Machines"],
	["j k", "next and previous row"],
	["Enter", "open"],
	["o w", "log and why of a row or job"],
	["[ ]", "attempt before and after"],
	[".", "actions of a job"],
	["w a s d", "on the life line: zoom in, left, zoom out, right; 0 shows all"],
	["arrows, f", "in an array: move, next failed"],
	["Esc", "back, close"],
]
function Help() {
	const ref = useRef()
	useEffect(() => {
		ref.current.showModal()
	}, [])
	return html`<dialog ref=${ref} onClose=${() => (help.value = false)} aria-label="keys"><h2>Keys</h2>
		<dl class=keys>${KEYS.map(([key, words]) => html`<dt><kbd>${key}</kbd></dt><dd>${words}</dd>`)}</dl>
		<form method="dialog"><button autofocus>close</button></form></dialog>`
}

let prefix = 0
function pressed(event) {
	const {key, target} = event
	if (event.ctrlKey || event.altKey || event.metaKey || document.querySelector("dialog[open]")) return
	if (key === "Escape")
		return target.matches?.("input,select,textarea")
			? target.blur()
			: void (route.value.view === "job" && history.back())
	if (!keysOn.value || target.matches?.("input,select,textarea")) return
	if (event.defaultPrevented) return
	const rows = [...document.querySelectorAll("[data-row] a:first-of-type")].filter(
		(a, i, all) => all.findIndex(b => b.closest("[data-row]") === a.closest("[data-row]")) === i,
	)
	const at = rows.findIndex(a => a.closest("[data-row]").contains(document.activeElement))
	const id =
		at >= 0
			? rows[at].hash.match(/^#\/job\/([^/?]+)/)?.[1]
			: route.value.view === "job" && encodeURIComponent(route.value.id)
	const acts = {
		"?": () => (help.value = true),
		"/": () => (document.querySelector("#log-search") ?? document.querySelector("#search"))?.focus(),
		g: () => (prefix = Date.now()),
		j: () => rows[Math.min(at + 1, rows.length - 1)]?.focus(),
		k: () => rows[Math.max(at - 1, 0)]?.focus(),
		o: () => id && (location.hash = jobHref(decodeURIComponent(id), "log")),
		w: () => id && (location.hash = jobHref(decodeURIComponent(id), "why")),
		".": () => document.querySelector(".actions button")?.focus(),
	}
	const view = Date.now() - prefix < 1500 && Object.entries(VIEWS).find(([, [, , letter]]) => letter === key)
	if (view) ((prefix = 0), go(view[0]))
	else if (acts[key]) acts[key]()
	else return
	event.preventDefault()
}
addEventListener("keydown", pressed)

function Page() {
	const me = session.value && whoami.value,
		{view, id} = route.value
	useEffect(() => {
		document.title = `${VIEWS[view]?.[0] ?? "Job"} · Windfall`
	}, [view, id])
	if (!session.value) return html`<${Login} />`
	const Shown = view === "job" ? JobView : VIEWS[view]?.[1]
	return html`<a class=skip href="#main" onClick=${e => (e.preventDefault(), document.getElementById("main").focus())}>to the content</a><${TopBar} />
		<main id="main" tabindex="-1">${link.value.up === false && html`<p class=problem role="alert"><b>!</b> ${prose(link.value.words)}</p>`}
			${!me ? html`<p class=quiet>asking the daemon…</p>` : Shown ? html`<${Shown} key=${view + id} />` : html`<p>There is no view ${view}. <a href="#/now">Now</a></p>`}</main>
		${dialog.value && html`<${Dialog} />`}${help.value && html`<${Help} />`}`
}

// Takes a session in: the one of the fragment, of the form, or the kept one.
async function begin(given) {
	const taken = given.key ? given : await sessionOf(given)
	if (!given.key) await keep(taken)
	session.value = taken
	notice.value = ""
	await greet()
}
async function greet() {
	try {
		await introduce()
		watchAgain(0, true)
	} catch (error) {
		if (!session.value) return
		if (error.code !== "Away") return leave(error.message)
		setTimeout(greet, 3000)
	}
}

const given = fromFragment()
if (!location.hash) history.replaceState(null, "", "#/now")
route.value = {...route.value}
dispatchEvent(new Event("hashchange"))
const old = given ?? (window.isSecureContext ? await kept().catch(() => null) : null)
document.body.replaceChildren()
const root = document.body.appendChild(document.createElement("div"))
drawnBy(() => render(html`<${Page} />`, root))
session.value ?? render(html`<${Page} />`, root)
if (old && (!old.expiresAt || old.expiresAt > Date.now())) begin(old)
else if (old) leave("Your session is over. Sign in again.")
