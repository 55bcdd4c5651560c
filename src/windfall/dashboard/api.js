// Asks the daemon, keeps the newest answer to each question, and says how old it is. An answer that has a topic
// comes by the one Watch stream while that is open; all others are polled while somebody looks. Knows no view.

import {signal} from "./state.js"
import {useEffect} from "./vendor/hooks.js"
import {signed, forget} from "./sign.js"

export const session = signal(null) // what signs
export const whoami = signal(null) // WhoAmI's answer
export const link = signal({up: null, heardAt: 0, streaming: false, words: ""})
export const tick = signal(Date.now()) // once a second, for ages
export const notice = signal("") // why the login page is shown
let skew = 0 // milliseconds that the daemon's clock is ahead of ours

export const now = () => Date.now() + skew
setInterval(() => document.hidden || (tick.value = Date.now()), 1000)

export class ApiError extends Error {
	constructor(code, message, status) {
		super(message)
		Object.assign(this, {code, status})
	}
}

function heard(up, words = "") {
	link.value = {...link.value, up, words, heardAt: up ? Date.now() : link.value.heardAt}
}

export async function leave(why = "") {
	await forget().catch(() => {})
	session.value = whoami.value = null
	notice.value = why
}

async function post(service, path, headers, params, {as = session.value, signal} = {}) {
	const body = JSON.stringify(params ?? {})
	const head = await signed(as, {service, path, headers, body, host: location.host, now: now()})
	let response
	try {
		response = await fetch(path, {
			method: "POST",
			headers: head,
			body,
			signal: signal ?? AbortSignal.timeout(60000),
			cache: "no-store",
		})
	} catch (error) {
		if (error.name === "AbortError") throw error
		heard(false, "The daemon does not answer. If it stopped, start it with `windfall up`: jobs go on meanwhile.")
		throw new ApiError("Away", link.value.words, 0)
	}
	heard(true)
	if (response.ok) return response
	let refusal = {}
	try {
		refusal = await response.json()
	} catch {
		// A proxy's own page, perhaps: the status has to do.
	}
	const code = refusal.__type ?? response.headers.get("x-amzn-errortype") ?? "HTTP " + response.status
	const message = refusal.message ?? refusal.Message ?? `The answer was HTTP ${response.status}.`
	if (code === "UnrecognizedClientException" && as === session.value)
		leave("Your session is over, or its key was revoked. Sign in again.")
	throw new ApiError(code, message, response.status)
}

const JSON_BODY = {"content-type": "application/json"}
export const own = async (operation, params, options) =>
	(await post("windfall", "/windfall/v1/" + operation, JSON_BODY, params, options)).json()
export const ownBytes = async (operation, params) =>
	(await post("windfall", "/windfall/v1/" + operation, JSON_BODY, params)).blob()
export const batch = async (operation, params) =>
	(await post("batch", "/v1/" + operation.toLowerCase(), JSON_BODY, params)).json()

export async function introduce() {
	const me = await own("WhoAmI")
	skew = me.now - Date.now()
	whoami.value = me
}

// ------------------------------------------------------------------------------------------------ kept answers

const entries = new Map() // question -> entry

class Entry {
	constructor(ask, topic) {
		Object.assign(this, {ask, topic, users: 0, timer: 0, every: 0})
		this.state = signal({data: undefined, error: null, at: 0})
	}
	put(data) {
		this.state.value = {data, error: null, at: Date.now()}
	}
	async again() {
		clearTimeout(this.timer)
		if (!session.value) return
		try {
			this.put(await this.ask())
		} catch (error) {
			this.state.value = {...this.state.value, error}
		}
		this.plan()
	}
	plan() {
		clearTimeout(this.timer)
		if (
			!this.users ||
			!this.every ||
			(this.topic && link.value.streaming) ||
			this.state.value.error?.code === "UnknownOperationException"
		)
			return
		// What failed is asked more slowly, and a hidden page asks nothing until it is shown.
		this.timer = setTimeout(
			() => (document.hidden ? this.plan() : this.again()),
			this.every * (this.state.value.error ? 2 : 1),
		)
	}
}

// The newest answer to a question: {data, error, at, again, topic}. `every` ms it is asked again; with a `topic`, Watch
// brings it. A question that is null is not asked.
export function useAnswer(operation, params, {every = 0, topic, through = own} = {}) {
	const key = operation && `${operation} ${JSON.stringify(params)}`
	if (key && !entries.has(key)) entries.set(key, new Entry(() => through(operation, params), topic))
	const entry = entries.get(key)
	useEffect(() => {
		if (!entry) return
		entry.users++
		entry.every = every
		if (Date.now() - entry.state.value.at > 2000) entry.again()
		else entry.plan()
		if (topic) watchAgain()
		return () => {
			entry.users--
			if (topic) watchAgain()
			if (entries.size > 200) for (const [name, old] of entries) if (!old.users) entries.delete(name)
		}
	}, [key])
	const state = entry ? entry.state.value : {at: 0}
	return {...state, topic, again: () => entry?.again()}
}

// Everything on the page once more, as after a change.
export const refresh = () => entries.forEach(entry => entry.users && entry.again())

// -------------------------------------------------------------------------------------------------------- Watch

const heeding = new Map() // topic -> a function that is told its data
export function heed(topic, told) {
	heeding.set(topic, told)
	watchAgain()
	return () => (heeding.delete(topic), watchAgain())
}

let stopping = null,
	pending = 0,
	lastId = null,
	failures = 0,
	watched = ""
function topics() {
	const wanted = new Set(heeding.keys())
	for (const entry of entries.values()) if (entry.topic && entry.users) wanted.add(entry.topic)
	return [...wanted].sort()
}

// Opens the stream anew when the topics changed; soon, because views change several at a time.
export function watchAgain(delay = 50, force = false) {
	clearTimeout(pending)
	pending = setTimeout(() => {
		const wanted = session.value && !document.hidden ? topics() : []
		if (!force && wanted.join() === watched) return
		watched = wanted.join()
		stopping?.abort()
		if (wanted.length) stream(wanted, (stopping = new AbortController()))
		else streaming(false)
	}, delay)
}

function streaming(on) {
	if (link.value.streaming === on) return
	link.value = {...link.value, streaming: on}
	entries.forEach(entry => entry.plan())
}

function tell(topic, data) {
	heeding.get(topic)?.(data)
	for (const entry of entries.values()) {
		if (entry.topic === topic && entry.users) entry.put(data)
	}
}

async function stream(wanted, control) {
	const fresh = wanted.filter(topic => !stream.had?.includes(topic)).length
	stream.had = wanted
	let wait = [1, 2, 5, 10][Math.min(failures++, 3)] * 1000
	try {
		const response = await post(
			"windfall",
			"/windfall/v1/Watch",
			JSON_BODY,
			{topics: wanted, after: fresh ? null : lastId},
			{signal: control.signal},
		)
		const reader = response.body.pipeThrough(new TextDecoderStream()).getReader()
		for (let rest = ""; ;) {
			const {value, done} = await reader.read()
			if (done) break
			streaming(true)
			heard(true)
			failures = 0
			const parts = (rest + value).split("\n\n")
			rest = parts.pop()
			for (const part of parts) event(part)
		}
	} catch (error) {
		if (control.signal.aborted) return
		if (["WatchElsewhere", "TooManyWatchers", "UnknownOperationException"].includes(error.code)) wait = 60000
	}
	if (control.signal.aborted) return
	streaming(false)
	entries.forEach(entry => entry.users && entry.topic && entry.again())
	watchAgain(wait, true)
}

function event(text) {
	const fields = {}
	for (const line of text.split("\n")) {
		const colon = line.indexOf(":")
		if (colon > 0) fields[line.slice(0, colon)] = line.slice(colon + 1).trimStart()
	}
	if (fields.id) lastId = fields.id
	if (!fields.event || !fields.data) return
	const data = JSON.parse(fields.data)
	if (fields.event === "end" && /session over|revoked/.test(data.reason)) leave("Your session is over. Sign in again.")
	else tell(fields.event, data)
}

let hiding = 0
document.addEventListener("visibilitychange", () => {
	clearTimeout(hiding)
	if (document.hidden) hiding = setTimeout(() => watchAgain(0), 60000)
	else
		((tick.value = Date.now()),
			watchAgain(0),
			entries.forEach(entry => !entry.topic && entry.users && entry.every && entry.again()))
})
