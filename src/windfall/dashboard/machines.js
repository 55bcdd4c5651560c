// Machines: what there is, what runs where, what it costs and when it is taken away. Also draws one GPU, for Now.

import {useAnswer} from "./api.js"
import {Bar, Empty, Job, Panel, Table, text, html} from "./parts.js"
import {href, jobHref} from "./route.js"
import {bytes, clock, count, num, percent, usd} from "./words.js"

const MIB = 1048576

// A device, MIG slice or shared device: who holds which part, how busy it is, and whether it is well.
export function Gpu({gpu, at, names, many}) {
	const {busy, smActive, memoryBytes} = gpu.sample ?? {}
	const free = 1 - gpu.holders.reduce((sum, holder) => sum + (holder.share ?? 1), 0)
	const health = gpu.health === "well" ? "" : gpu.health
	const holder = h =>
		h.jobId === "others"
			? html`<span>another tenant</span>`
			: html`<a href=${jobHref(h.jobId)}>${text(names[h.jobId] ?? h.jobId.slice(0, 8), 30)}</a>`
	return html`<li class="gpu ${gpu.health}"><div class=gpu-head><b>${at}</b> <span>${gpu.name}${gpu.parent ? " slice" : ""}</span>${many && html` <a href=${href("machines")} class=quiet>${gpu.machine.name ?? gpu.machine.id}</a>`}${health && html`<b class=health>${health === "noted" ? "! noted" : "✗ " + health}</b>`}</div>
		<div class=holders>${gpu.holders.map(h => html`<span class=holder style=${{flexGrow: h.share ?? 1}}>${holder(h)}${h.share && h.share < 1 && html` <small>${percent(h.share)}</small>`}</span>`)}
			${free > 0.001 && gpu.health !== "fenced" && gpu.health !== "lost" && html`<span class=free style=${{flexGrow: free}}>free</span>`}</div>
		${
			gpu.fence
				? html`<p class=why>${gpu.fence}</p>`
				: gpu.sample && busy != null
					? html`<div class=meters><span>busy ${percent(busy)}</span><${Bar} of=${1} parts=${[["busy", busy, "busy"]]} label="busy ${percent(busy)}" />
				${smActive != null && html`<span>SM ${percent(smActive)}</span><${Bar} of=${1} parts=${[["SM active", smActive, "sm"]]} label="SM active ${percent(smActive)}" />`}
				<span>${bytes(memoryBytes)} of ${bytes(gpu.memoryMib * MIB)}</span><${Bar} of=${gpu.memoryMib * MIB} parts=${[["memory", memoryBytes ?? 0, "mem"]]} label="memory" /></div>`
					: html`<p class=quiet>${gpu.memoryMib ? bytes(gpu.memoryMib * MIB) + ", " : ""}not measured</p>`
		}
		${gpu.notes?.length > 0 && html`<p class=why>${gpu.notes.join("; ")}</p>`}</li>`
}

function Machine({machine: m, of}) {
	const rows = m.instances
	return html`<${Panel} title="${m.name ?? m.id ?? "Being launched"}${m.own ? " (the daemon's host)" : ""}" of=${of} command="windfall status">
		${m.closed && html`<p class=problem><b>!</b> takes nothing new: ${text(m.closed, 300)}</p>`}
		${
			m.vcpus > 0 &&
			html`<div class=row><span>vCPUs ${num(m.usedVcpus)} of ${num(m.vcpus)}</span><${Bar} of=${m.vcpus} parts=${[["vCPUs held", m.usedVcpus, "busy"]]} />
			<span>memory ${bytes(m.usedMemoryMib * MIB)} of ${bytes(m.memoryMib * MIB)}</span><${Bar} of=${m.memoryMib} parts=${[["memory held, MiB", m.usedMemoryMib, "mem"]]} /></div>`
		}
		${m.gpus.length > 0 && html`<ol class=gpus>${m.gpus.map((gpu, at) => html`<${Gpu} gpu=${gpu} at=${at} names=${namesOf(m)} key=${gpu.id} />`)}</ol>`}
		${
			rows.length
				? html`<${Table} label="instances of ${m.name}" rows=${rows} keyOf=${i => i.id} columns=${[
						["instance", i => html`<code>${i.id}</code>`],
						["environment", i => text(i.environment, 40)],
						["type", i => i.type ?? "-", "opt"],
						["state", i => i.state],
						["$ per hour", i => usd(i.usdHour), "n"],
						["taken away", i => (i.reclaimAt ? html`<b>! ${clock(i.reclaimAt)}</b>` : "-"), "n"],
						["vCPUs", i => num(i.vcpus), "n opt"],
						["GPUs", i => i.gpus || "-", "n opt"],
						[
							"jobs",
							i =>
								html`${i.jobs?.slice(0, 3).map(j => html`<${Job} id=${j.jobId} name=${j.jobName} /> `)}${i.runningJobs > 3 ? `and ${i.runningJobs - 3} more` : i.runningJobs ? "" : "-"}`,
						],
					]} />`
				: html`<p class=quiet>No instance is up; one is made when a job needs it.</p>`
		}<//>`
}
const namesOf = m => Object.fromEntries(m.instances.flatMap(i => (i.jobs ?? []).map(j => [j.jobId, j.jobName])))

export function Machines() {
	const machines = useAnswer("Machines", {}, {every: 5000})
	const list = machines.data?.machines ?? []
	return html`<h1>${machines.data ? count(list.length, "machine") : "Machines"}</h1>
		${machines.data ? list.map(m => html`<${Machine} machine=${m} of=${machines} key=${m.id} />`) : html`<${Panel} title="Machines" of=${machines} />`}
		${machines.data && !list.length && html`<${Empty} command="windfall doctor">No machine is connected: the agent of this host has not answered. This checks it:<//>`}`
}
