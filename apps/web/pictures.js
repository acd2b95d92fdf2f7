// Pictures of messages, which models with eyes see (docs/PICTURES.md). A message keeps {doc, name, size, width, height} of each among
// its documents. The file is stored apart as a data: URL, under a hash of it, in IndexedDB, which has room for it; when the browser
// refuses that, in memory until the page is closed. A file that is larger than what a model gets to see is made smaller first.

import { byId, make } from "./dom.js";
import { say } from "./language.js";
import { cleanText, documentName, hashText } from "./store.js";

/** @import { Said, StoredDocument } from "./store.js" */

const FILE_MAX = 64 << 20; // bytes of a file
const SENT_BYTES = 4 << 20; // larger files,
const SENT_PIXELS = 4 << 20; // and those with more pixels, are made smaller
const URL_PATTERN = /^data:image\/(png|jpeg|webp|gif);base64,[\w+/=]+$/;

/** @typedef {{ url: string, width: number, height: number }} Picture */

// ---- storage -------------------------------------------------------------------------------------------------------

/** @type {Map<string, string>} */
const known = new Map(); // URLs by id

/** @type {Promise<IDBDatabase | null> | null} */
let opened = null;

const openDatabase = () =>
    (opened ??= new Promise(resolve => {
        try {
            const request = indexedDB.open("spry", 1);
            request.onupgradeneeded = () => request.result.createObjectStore("pictures");
            request.onsuccess = () => resolve(request.result);
            request.onerror = () => resolve(null);
        } catch {
            resolve(null);
        }
    }));

// The result of a request to the store; null where the browser refuses it.
/** @param {IDBTransactionMode} mode @param {(store: IDBObjectStore) => IDBRequest} work @returns {Promise<any>} */
async function inStore(mode, work) {
    const database = await openDatabase();
    return new Promise(resolve => {
        try {
            const request = work(/** @type {IDBDatabase} */ (database).transaction("pictures", mode).objectStore("pictures"));
            request.onsuccess = () => resolve(request.result);
            request.onerror = () => resolve(null);
        } catch {
            resolve(null);
        }
    });
}

/** @param {StoredDocument} document */
export const isPicture = document => (document.width ?? 0) > 0;

/** @param {string} name @param {Picture} picture @returns {StoredDocument} */
export function storePicture(name, { url, width, height }) {
    const doc = hashText(url);
    known.set(doc, url);
    inStore("readwrite", store => store.put(url, doc));
    return { doc, name, size: Math.round((url.length * 3) / 4), width, height };
}

// Reads the pictures of these messages; pictureUrl has them afterwards.
/** @param {Said[]} messages */
export async function loadPictures(messages) {
    const ids = messages.flatMap(message => (message.documents ?? []).filter(isPicture).map(document => document.doc));
    for (const id of ids.filter(one => !known.has(one))) {
        const url = cleanText(await inStore("readonly", store => store.get(id)), FILE_MAX);
        if (URL_PATTERN.test(url)) {
            known.set(id, url);
        }
    }
}

/** @param {StoredDocument} document */
export const pictureUrl = document => known.get(document.doc) ?? null;

// Removes pictures that no conversation has any more.
/** @param {(id: string) => boolean} isUsed */
export async function dropOldPictures(isUsed) {
    for (const id of (await inStore("readonly", store => store.getAllKeys())) ?? []) {
        if (!isUsed(String(id)) && !known.has(String(id))) {
            inStore("readwrite", store => store.delete(id));
        }
    }
}

// Pictures of a file with conversations.
/** @param {any} value */
export function takePictures(value) {
    for (const url of Object.values(Object(value))) {
        if (typeof url === "string" && url.length <= FILE_MAX && URL_PATTERN.test(url)) {
            storePicture("", { url, width: 1, height: 1 });
        }
    }
}

// ---- files ---------------------------------------------------------------------------------------------------------

// The type of a file that the server reads, by its first bytes; "" for others.
/** @param {Uint8Array} bytes */
function typeOf(bytes) {
    const text = String.fromCharCode(...bytes);
    const types = { "\x89PNG": "image/png", "\xff\xd8\xff": "image/jpeg", GIF8: "image/gif" };
    const found = Object.entries(types).find(([magic]) => text.startsWith(magic));
    return found ? found[1] : text.startsWith("RIFF") && text.slice(8, 12) === "WEBP" ? "image/webp" : "";
}

/** @param {Blob} blob @returns {Promise<string>} */
const urlOf = blob =>
    new Promise((resolve, reject) => {
        const reader = new FileReader();
        reader.onload = () => resolve(String(reader.result));
        reader.onerror = () => reject(reader.error);
        reader.readAsDataURL(blob);
    });

// The picture in a file, on white, with at most SENT_PIXELS.
/** @param {ImageBitmap} bitmap @returns {Picture} */
function smaller(bitmap) {
    const scale = Math.min(1, Math.sqrt(SENT_PIXELS / (bitmap.width * bitmap.height)));
    const width = Math.max(1, Math.round(bitmap.width * scale));
    const height = Math.max(1, Math.round(bitmap.height * scale));
    const canvas = /** @type {HTMLCanvasElement} */ (make("canvas", { width, height }));
    const draw = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    draw.fillStyle = "#fff";
    draw.fillRect(0, 0, width, height);
    draw.imageSmoothingQuality = "high";
    draw.drawImage(bitmap, 0, 0, width, height);
    return { url: canvas.toDataURL("image/jpeg", 0.92), width, height };
}

// Null for a file that is no picture; throws an error with a sentence for one that is damaged.
/** @param {File} file @returns {Promise<Picture | null>} */
export async function readPicture(file) {
    const type = typeOf(new Uint8Array(await file.slice(0, 12).arrayBuffer().catch(() => new ArrayBuffer(0))));
    if (!type && !/^image\/(?!svg)/.test(file.type)) {
        return null;
    }
    const bitmap = file.size <= FILE_MAX ? await createImageBitmap(file).catch(() => null) : null;
    if (!bitmap) {
        throw new Error(say("{0} is no picture that can be read.", documentName(file.name)));
    }
    const { width, height } = bitmap;
    return type && file.size <= SENT_BYTES && width * height <= SENT_PIXELS
        ? { url: await urlOf(new Blob([file], { type })), width, height }
        : smaller(bitmap);
}

// "no": the chosen model is loaded and cannot see pictures.
export const modelSees = () => byId("model").selectedOptions[0]?.dataset.sees ?? "";

// ---- showing -------------------------------------------------------------------------------------------------------

// A small view of a picture, which appears as soon as it is read.
/** @param {StoredDocument} document */
export function thumbnail(document) {
    const image = /** @type {HTMLImageElement} */ (make("img", { class: "thumbnail", alt: document.name }));
    loadPictures([{ role: "user", content: "", documents: [document] }]).then(() => {
        image.src = pictureUrl(document) ?? "";
    });
    return image;
}

/** @param {StoredDocument} document */
export function openPicture(document) {
    const url = pictureUrl(document);
    byId("document-title").textContent = document.name;
    byId("document-text").replaceChildren(
        url ? make("img", { src: url, alt: document.name }) : say("The picture is no longer stored in this browser."),
    );
    byId("document").showModal();
}
