// Turns the bytes of a terminal into pieces of text with classes: colours and weights of SGR stay, everything else
// (moves, titles, links, bells, other control characters) is dropped. Of a line that was drawn over, the last
// drawing stays.

const SEQUENCE =
	/\x1b\[([0-9;:]*)m|\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][\s\S]*?(?:\x07|\x1b\\|$)|\x1b[ -/]*[0-~]?|[\x00-\x08\x0b-\x1f\x7f-\x9f]/g
const WEIGHTS = {1: "bold", 2: "dim", 3: "italic", 4: "under", 7: "inverse", 9: "struck"}
const OFF = {22: ["bold", "dim"], 23: ["italic"], 24: ["under"], 27: ["inverse"], 29: ["struck"]}

function apply(codes, look) {
	for (let i = 0; i < codes.length; i++) {
		const code = codes[i]
		if (!code) look = {}
		else if (WEIGHTS[code]) look = {...look, [WEIGHTS[code]]: true}
		else if (OFF[code]) look = Object.fromEntries(Object.entries(look).filter(([name]) => !OFF[code].includes(name)))
		else if (code >= 30 && code <= 37) look = {...look, fg: code - 30}
		else if (code >= 90 && code <= 97) look = {...look, fg: code - 82}
		else if (code >= 40 && code <= 47) look = {...look, bg: code - 40}
		else if (code >= 100 && code <= 107) look = {...look, bg: code - 92}
		else if (code === 39) look = {...look, fg: undefined}
		else if (code === 49) look = {...look, bg: undefined}
		else if (code === 38 || code === 48) {
			// Of 256 colours the first sixteen are shown; others are passed over with their arguments.
			const colour = codes[i + 1] === 5 && codes[i + 2] < 16 ? codes[i + 2] : undefined
			look = {...look, [code === 38 ? "fg" : "bg"]: colour}
			i += codes[i + 1] === 5 ? 2 : codes[i + 1] === 2 ? 4 : 0
		}
	}
	return look
}

const classes = look =>
	[
		look.fg != null && `fg${look.fg}`,
		look.bg != null && `bg${look.bg}`,
		...Object.values(WEIGHTS).filter(name => look[name]),
	]
		.filter(Boolean)
		.join(" ")

// [[text, classes]...] of one line.
export function pieces(line) {
	const drawn = line.replace(/\r+$/, ""),
		over = drawn.lastIndexOf("\r")
	const text = over < 0 ? drawn : drawn.slice(over + 1)
	const out = []
	let look = {},
		from = 0
	const add = piece => piece && out.push([piece, classes(look)])
	for (const match of text.matchAll(SEQUENCE)) {
		add(text.slice(from, match.index))
		from = match.index + match[0].length
		if (match[1] !== undefined) look = apply(match[1].split(/[;:]/).map(Number), look)
	}
	add(text.slice(from))
	return out
}
