// How values are written for people. Decides spelling alone; knows no operation.

export const STATES = {
	SUBMITTED: ["S", "○", "submitted"],
	PENDING: ["P", "◔", "waits for others"],
	RUNNABLE: ["W", "◑", "waits"],
	STARTING: ["T", "◕", "starts"],
	RUNNING: ["R", "▶", "runs"],
	SUCCEEDED: ["O", "✓", "succeeded"],
	FAILED: ["F", "✗", "failed"],
}
export const ENDED = ["SUCCEEDED", "FAILED"]
export const LETTERS = Object.fromEntries(Object.entries(STATES).map(([state, [letter]]) => [letter, state]))

export const num = n =>
	n == null
		? "-"
		: n && Math.abs(n) < 0.01
			? n.toPrecision(2)
			: n.toLocaleString("en", {maximumFractionDigits: n < 10 ? 2 : 0})
export const count = (n, what, many = what + "s") => `${num(n)} ${n === 1 ? what : many}`
export const percent = part => (part == null ? "-" : `${Math.round(part * 100)} %`)
export const usd = n =>
	n == null ? "-" : "$" + (n >= 100 ? num(Math.round(n)) : n >= 1 || !n ? n.toFixed(2) : n.toPrecision(2))

export function bytes(n, per = "") {
	if (n == null) return "-"
	const units = ["B", "kB", "MB", "GB", "TB"]
	let i = 0
	for (; n >= 1000 && i < 4; i++) n /= 1000
	return `${i && n < 10 ? n.toFixed(1) : Math.round(n)} ${units[i]}${per}`
}

export function span(ms) {
	if (ms == null) return "-"
	const s = Math.max(0, Math.round(ms / 1000))
	if (s < 100) return s || !ms ? `${s} s` : "< 1 s"
	if (s < 6000) return `${Math.round(s / 60)} min`
	if (s < 172800) return `${Math.floor(s / 3600)} h ${Math.round((s % 3600) / 60)} min`
	return `${Math.floor(s / 86400)} d ${Math.round((s % 86400) / 3600)} h`
}

const two = n => String(n).padStart(2, "0")
export function clock(ms, seconds = true) {
	if (ms == null) return "-"
	const d = new Date(ms)
	const time = `${two(d.getHours())}:${two(d.getMinutes())}${seconds ? ":" + two(d.getSeconds()) : ""}`
	return d.toDateString() === new Date().toDateString()
		? time
		: `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} ${time}`
}

// When a job is expected to end, with the range that holds nine of ten.
export const endWords = end =>
	!end
		? ""
		: end.highAt
			? `done about ${clock(end.at, false)}, in 9 of 10 cases from ${clock(end.lowAt, false)} to ${clock(end.highAt, false)} (${end.from})`
			: `done about ${clock(end.at, false)} (${end.from})`

// A string of somebody else's, short enough for a line; what it hides is said.
export const cut = (text, max = 100) =>
	text.length > max ? `${text.slice(0, max)}… (${num(text.length)} characters)` : text

// An argument of a command line that a shell reads as it is.
export const quoted = text => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`)
