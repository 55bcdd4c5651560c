// The address: every view, filter, zoom and selection is in the hash, so every state of the page is a link.

import {signal} from "./state.js"

const read = () => {
	const [path, query = ""] = location.hash.slice(1).split("?")
	const [view = "now", id = "", tab = ""] = path
		.split("/")
		.slice(1)
		.map(part => {
			try {
				return decodeURIComponent(part)
			} catch {
				return part
			}
		})
	return {view: view || "now", id, tab, q: Object.fromEntries(new URLSearchParams(query))}
}
export const route = signal(read())
addEventListener("hashchange", () => (route.value = read()))

export function href(view, id = "", tab = "", q = {}) {
	const parts = [view, id, tab].filter(Boolean).map(encodeURIComponent).join("/")
	const given = Object.entries(q).filter(([, value]) => value != null && value !== "")
	return `#/${parts}${given.length ? "?" + new URLSearchParams(given) : ""}`
}
export const go = (...place) => (location.hash = href(...place))
export const jobHref = (id, tab, q) => href("job", id, tab, q)

// Changes parts of the query. A selection replaces the entry of the history; a filter would fill it up.
export function setQuery(change, tab = route.value.tab) {
	const {view, id, q} = route.value
	history.replaceState(null, "", href(view, id, tab, {...q, ...change}))
	route.value = read()
}
