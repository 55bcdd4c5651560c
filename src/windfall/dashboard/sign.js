// Signs requests (AWS Signature Version 4) with a session's key that the browser holds and no script can read. The
// secret text is forgotten once it is imported; what is kept lies in IndexedDB, whose scope includes the port, so
// pages of jobs on other ports of this host have no way to it.

const bytesOf = text => new TextEncoder().encode(text)
const hex = buffer => Array.from(new Uint8Array(buffer), byte => byte.toString(16).padStart(2, "0")).join("")
const imported = raw => crypto.subtle.importKey("raw", raw, {name: "HMAC", hash: "SHA-256"}, false, ["sign"])
const hmac = (key, text) => crypto.subtle.sign("HMAC", key, bytesOf(text))

// A session as it is kept: everything but the secret, which becomes a key.
export async function sessionOf({secretAccessKey, ...rest}) {
	return {...rest, key: await imported(bytesOf("AWS4" + secretAccessKey))}
}

const derived = new WeakMap()
async function signingKey(session, date, region, service) {
	if (!derived.has(session)) derived.set(session, {})
	const keys = derived.get(session)
	return (keys[date + service] ??= (async () => {
		let key = session.key
		for (const part of [date, region, service, "aws4_request"]) key = await imported(await hmac(key, part))
		return key
	})())
}

// The headers of a POST; `host` is signed too, and the browser itself sends it.
export async function signed(session, {service, path, headers, body, host, now}) {
	const stamp = new Date(now).toISOString().replace(/[-:]|\.\d+/g, "")
	const all = {...headers, host, "x-amz-date": stamp}
	if (session.sessionToken) all["x-amz-security-token"] = session.sessionToken
	const names = Object.keys(all).sort()
	const region = session.region || "us-east-1"
	const scope = `${stamp.slice(0, 8)}/${region}/${service}/aws4_request`
	const digest = async text => hex(await crypto.subtle.digest("SHA-256", bytesOf(text)))
	const canonical = [
		"POST",
		path,
		"",
		...names.map(name => `${name}:${all[name].trim()}`),
		"",
		names.join(";"),
		await digest(body),
	]
	const key = await signingKey(session, stamp.slice(0, 8), region, service)
	const signature = hex(
		await hmac(key, ["AWS4-HMAC-SHA256", stamp, scope, await digest(canonical.join("\n"))].join("\n")),
	)
	delete all.host
	all.authorization = `AWS4-HMAC-SHA256 Credential=${session.accessKeyId}/${scope}, SignedHeaders=${names.join(";")}, Signature=${signature}`
	return all
}

function inDatabase(mode, act) {
	return new Promise((resolve, reject) => {
		const opening = indexedDB.open("windfall", 1)
		opening.onupgradeneeded = () => opening.result.createObjectStore("session")
		opening.onerror = () => reject(opening.error)
		opening.onsuccess = () => {
			const request = act(opening.result.transaction("session", mode).objectStore("session"))
			request.onsuccess = () => (opening.result.close(), resolve(request.result))
			request.onerror = () => reject(request.error)
		}
	})
}
export const keep = session => inDatabase("readwrite", store => store.put(session, "session"))
export const kept = () => inDatabase("readonly", store => store.get("session"))
export const forget = () => inDatabase("readwrite", store => store.delete("session"))

// The session in the fragment that `windfall dashboard` opens, and the view to show; the fragment is cleared at once.
export function fromFragment() {
	const match = /^#session=([\w-]+)(?:&view=(.*))?$/.exec(location.hash)
	if (!match) return null
	const view = match[2] ? decodeURIComponent(match[2]) : "#/now"
	history.replaceState(null, "", view.startsWith("#") ? view : "#" + view)
	try {
		const text = atob(match[1].replaceAll("-", "+").replaceAll("_", "/"))
		return JSON.parse(new TextDecoder().decode(Uint8Array.from(text, c => c.charCodeAt(0))))
	} catch {
		return null
	}
}
