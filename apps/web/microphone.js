// Runs in the browser's audio thread: passes the microphone's samples to the page in blocks of about 20 ms.

class Microphone extends AudioWorkletProcessor {
    constructor() {
        super();
        this.block = new Float32Array(1024);
        this.filled = 0;
    }

    process([[samples]]) {
        for (const sample of samples ?? []) {
            this.block[this.filled++] = sample;
            if (this.filled === this.block.length) {
                this.port.postMessage(this.block.slice());
                this.filled = 0;
            }
        }
        return true;
    }
}

registerProcessor("microphone", Microphone);
